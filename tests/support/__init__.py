"""What tests use of the package beside its public names."""
