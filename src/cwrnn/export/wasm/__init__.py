"""Export to WebAssembly: `export.py` writes the files, `compiler.py` makes the module, `page.*` is the page."""
