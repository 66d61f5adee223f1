"""Training of one trial: the LightningModule, optimisers and schedules, exact resume, several devices."""
