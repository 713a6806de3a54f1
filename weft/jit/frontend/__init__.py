"""Programs from Python source. Stages, a file each: `place` reads source, `subset` checks what it is written in,
`annotations` gives types, `environment` keeps variables, `expressions` and `statements` make nodes, `functions`
compiles a function and those that it calls, `compiler` begins at a function of Python or at a text."""
