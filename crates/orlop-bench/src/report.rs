//! Rows of results: a table for people, JSON for programs.

use std::{fs::File, path::Path};

use serde::Serialize;

/// One figure, beside its peer's where there is one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Name of the figure.
    pub(crate) name: String,
    /// In what.
    pub(crate) unit: &'static str,
    /// Ours.
    pub(crate) value: f64,
    /// Peer that was measured in the same run.
    pub(crate) peer: Option<&'static str>,
    /// Theirs.
    pub(crate) peer_value: Option<f64>,
    /// Ratio to the peer: above 1 is in our favour, whichever way the unit points.
    pub(crate) ratio: Option<f64>,
}

/// Direction in which a figure is better.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Better {
    /// More is better, as of rates.
    Higher,
    /// Less is better, as of times and sizes.
    Lower,
}

/// Results as they come in: each row is shown at once, since a run takes minutes.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds a figure without a peer.
    pub(crate) fn alone(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        self.push(Row { name: name.into(), unit, value, peer: None, peer_value: None, ratio: None });
    }

    /// Adds a figure beside a peer's.
    pub(crate) fn beside(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        better: Better,
        value: f64,
        peer: &'static str,
        peer_value: f64,
    ) {
        let ratio = match better {
            Better::Higher => value / peer_value,
            Better::Lower => peer_value / value,
        };
        let (peer, peer_value) = (Some(peer), Some(peer_value));
        self.push(Row { name: name.into(), unit, value, peer, peer_value, ratio: Some(ratio) });
    }

    fn push(&mut self, row: Row) {
        let beside = match (&row.peer, row.peer_value, row.ratio) {
            (Some(peer), Some(value), Some(ratio)) => format!("{ratio:8.2}x  {} of {peer}", number(value)),
            _ => String::new(),
        };
        println!("{:<58}{:>12} {:<9}{beside}", row.name, number(row.value), row.unit);
        self.rows.push(row);
    }

    /// Writes the rows as a JSON array.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        serde_json::to_writer_pretty(File::create(path)?, &self.rows)?;
        Ok(())
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        middling if middling >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
