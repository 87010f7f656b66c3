"""Ideas that fit a campaign, as lines to edit."""
