//! Rows of results: a table for people, JSON for programs.

use std::{fs::File, path::Path};

/// One figure, beside its peer's where there is one.
#[derive(Debug, serde::Serialize)]
struct Row {
    name: String,
    unit: &'static str,
    value: f64,
    peer: Option<&'static str>,
    peer_value: Option<f64>,
    /// Times better than the peer: above 1 is in our favour.
    ratio: Option<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds a figure of which less is better, beside its peers'.
    pub(crate) fn lower(
        &mut self,
        name: &str,
        unit: &'static str,
        value: f64,
        peers: &[(&'static str, f64)],
    ) {
        for (peer, peer_value) in peers {
            self.push(name, unit, value, Some((peer, *peer_value, peer_value / value)));
        }
    }

    /// Adds a figure of which more is better, beside its peer's.
    pub(crate) fn higher(&mut self, name: &str, unit: &'static str, value: f64, peer: (&'static str, f64)) {
        self.push(name, unit, value, Some((peer.0, peer.1, value / peer.1)));
    }

    /// Adds a figure without a peer.
    pub(crate) fn alone(&mut self, name: &str, unit: &'static str, value: f64) {
        self.push(name, unit, value, None);
    }

    fn push(&mut self, name: &str, unit: &'static str, value: f64, peer: Option<(&'static str, f64, f64)>) {
        let beside = peer.map(|(peer, value, ratio)| format!("{ratio:8.2}x  {value:.3} of {peer}"));
        println!("{name:<52}{value:>12.3} {unit:<11}{}", beside.unwrap_or_default());
        self.rows.push(Row {
            name: name.to_owned(),
            unit,
            value,
            peer: peer.map(|(peer, ..)| peer),
            peer_value: peer.map(|(_, value, _)| value),
            ratio: peer.map(|(.., ratio)| ratio),
        });
    }

    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        Ok(serde_json::to_writer_pretty(File::create(path)?, &self.rows)?)
    }
}
