"""The loan-manager service: lends servers that inference does not need to training."""
