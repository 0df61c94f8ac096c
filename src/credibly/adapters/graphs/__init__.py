"""Nodes of a graph, or whole graphs, as samples whose features move."""
