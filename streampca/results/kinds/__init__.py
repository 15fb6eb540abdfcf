"""One module per kind of model, named after it, with its record `KIND`."""
