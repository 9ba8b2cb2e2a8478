"""The elastic worker runtime: user API, leader and workers of one job."""
