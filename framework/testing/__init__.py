"""Tools for proving that a part is lossless: tiny models, exact laws, scripted drafters."""
