//! ResourceGraphDefinitions.
