//! Pure policy: workspace paths and environment variable tiers.
