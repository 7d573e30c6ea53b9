"""The page `results/play.html`: an episode in the browser, played by the embedded model.

`tables` takes everything that JavaScript needs from Python, `weights` packs and unpacks models,
`page` puts the file together. The JavaScript modules in this folder are the page's code.
"""
