"""Results as Zarr stores: their schema, writing, opening and export."""
