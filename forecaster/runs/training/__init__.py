"""A training: Lightning around a learner, on one device or on several that have met."""
