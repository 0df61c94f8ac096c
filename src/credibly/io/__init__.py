"""Reading and writing: inputs, models, results, run folders."""
