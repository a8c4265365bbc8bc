//! `orlop device watch`.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use clap::Args;
use orlop_device_client::{Cache, Change, Gpus};
use tokio::sync::mpsc;

use super::{connect::ServerArguments, get::Selection, table::Table};
use crate::shutdown;

/// Time between redraws of the table.
const FRAME: Duration = Duration::from_millis(50);
/// Limit on changes that wait to be printed.
const CHANGES_MAX: usize = 65_536;

/// Show the devices as a live table; in a file or pipe, as one line per change.
///
/// Reconnects after a restart of the server and shows what changed in between.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    selection: Selection,

    #[command(flatten)]
    server: ServerArguments,
}

impl Watch {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let gpus = self.selection.apply(Gpus::new(self.server.open()?));
        tokio::select! {
            result = async {
                if std::io::stdout().is_terminal() { draw_table(gpus, &self.server.server).await } else { print_lines(gpus).await }
            } => result,
            () = shutdown::requested() => Ok(()),
        }
    }
}

/// Redraws the whole table with each change.
async fn draw_table(gpus: Gpus, server: &str) -> anyhow::Result<()> {
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
            // Cursor home, the text with the rest of each line cleared, then the rest of the screen cleared.
            write!(out, "\x1b[H{}\x1b[J", head.replace('\n', "\x1b[K\n"))?;
            out.flush()?;
        }
        tokio::time::sleep(FRAME).await;
        versions.changed().await?;
    }
}

/// Prints a line for every change.
async fn print_lines(gpus: Gpus) -> anyhow::Result<()> {
    let (sender, mut changes) = mpsc::channel(CHANGES_MAX);
    // A reader that is this far behind misses changes; a gap in the versions shows it.
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
