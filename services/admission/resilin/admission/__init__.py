"""The admission service: takes commands, answers them with promises or counter-offers."""
