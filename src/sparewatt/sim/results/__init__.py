"""Results of a simulation: summary, plot, and the comparison with spot prices."""
