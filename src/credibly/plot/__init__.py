"""Pictures of one input and its profile; matplotlib is loaded when one is drawn."""
