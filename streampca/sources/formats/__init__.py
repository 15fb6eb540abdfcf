"""One module per format. Each registers its open function; heavy packages are imported inside that function."""
