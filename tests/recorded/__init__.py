"""What results and refusals were before the code was put in another order, and how to compare."""
