"""Tables and figures of the papers, each recomputed by one command: `dkl reproduce NAME`.

`registry.py` lists them, a module a paper has their cases, `item.py` their form, `driver.py` runs them and keeps the rows in a
JSON file, and `tables.py` makes Markdown and pictures from that file alone.
"""
