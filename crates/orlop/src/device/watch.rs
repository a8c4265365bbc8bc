//! `orlop device watch`.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use clap::Args;
use orlop_device_client::{Cache, Change, Gpus};
use tokio::sync::mpsc;

use super::{connect::ServerArguments, get::Choice, table::Table};
use crate::shutdown;

/// How long to gather changes before the table is drawn again.
const FRAME: Duration = Duration::from_millis(50);
/// Changes that may wait to be printed.
const CHANGES_MAX: usize = 65_536;

/// Show the devices as a table that stays up to date; into a file or pipe, a line for every change.
///
/// Survives restarts of the server: it reconnects, and shows what changed in between.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    choice: Choice,

    #[command(flatten)]
    server: ServerArguments,
}

impl Watch {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let gpus = self.choice.of(Gpus::new(self.server.open()?));
        tokio::select! {
            result = async {
                if std::io::stdout().is_terminal() { live(gpus, &self.server.server).await } else { lines(gpus).await }
            } => result,
            () = shutdown::requested() => Ok(()),
        }
    }
}

/// The whole table, again with each change.
async fn live(gpus: Gpus, server: &str) -> anyhow::Result<()> {
    let cache = Cache::start(gpus);
    let mut versions = cache.versions();
    loop {
        let version = versions.borrow_and_update().clone();
        let head = match version {
            None => format!("waiting for {server} …\n"),
            Some(version) => {
                let found = cache.list();
                let ready = found.iter().filter(|gpu| super::table::is_ready(gpu)).count();
                format!("{server}: {} devices, {ready} ready, at version {version}\n\n", found.len())
                    + &Table { color: true }.draw(found.iter().map(|gpu| &**gpu))
            }
        };
        {
            let mut out = std::io::stdout().lock();
            // Home, the text with the rest of each line cleared, then the rest of the screen cleared.
            write!(out, "\x1b[H{}\x1b[J", head.replace('\n', "\x1b[K\n"))?;
            out.flush()?;
        }
        tokio::time::sleep(FRAME).await;
        versions.changed().await?;
    }
}

/// A line for every change.
async fn lines(gpus: Gpus) -> anyhow::Result<()> {
    let (sender, mut changes) = mpsc::channel(CHANGES_MAX);
    // A reader that is this far behind misses changes, and is told so by the missing version.
    let cache = Cache::start_with(gpus, move |change| drop(sender.try_send(change)));
    let table = Table { color: false };
    let mut out = std::io::stdout();
    writeln!(out, "{:<9}{}", "EVENT", table.heading())?;
    while let Some(change) = changes.recv().await {
        let (event, gpu) = match &change {
            Change::Added(gpu) => ("ADDED", gpu),
            Change::Modified(gpu) => ("MODIFIED", gpu),
            Change::Deleted(gpu) => ("DELETED", gpu),
        };
        writeln!(out, "{event:<9}{}", table.row(gpu))?;
        out.flush()?;
    }
    drop(cache);
    Ok(())
}
