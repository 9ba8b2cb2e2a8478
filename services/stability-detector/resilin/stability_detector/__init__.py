"""The stability-detector service: tells when a job's training speed has settled."""
