"""The twin: cloud, links, edges and devices on a virtual clock, with the decision objects of the daemons."""
