//! `orlop etcd import` and `orlop etcd export`: copy the key space from or to a live etcd.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use orlop_etcd::{
    Client, ClientTls, Options, Server,
    copy::{self, Progress},
};
use orlop_store::Store;

use super::serve::Data;

/// Copy the key space of a live etcd (or another orlop) into this database.
///
/// Copies keys, values and leases, not revisions and history. Stop all writers first. An interrupted copy
/// resumes when it is run again; both sides are compared at the end.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// etcd to copy from: http://host:port, https://host:port or unix:///path.
    #[arg(long, value_name = "ADDRESS")]
    from: String,
    #[command(flatten)]
    common: Common,
}

/// Copy the key space of this database to a live etcd (or another orlop).
///
/// Works as import does, in the other direction.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// etcd to copy to: http://host:port, https://host:port or unix:///path.
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    data: Data,

    /// Delete keys of the target that the source does not have. Without this such keys are an error.
    #[arg(long)]
    delete_extra: bool,

    /// CA (PEM) that the live etcd's certificate must be issued by.
    #[arg(long, value_name = "FILE", help_heading = "TLS to the live etcd")]
    etcd_ca_file: Option<PathBuf>,

    /// Client certificate (PEM) for the live etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_key_file", help_heading = "TLS to the live etcd")]
    etcd_cert_file: Option<PathBuf>,

    /// Private key (PEM) of that client certificate.
    #[arg(long, value_name = "FILE", requires = "etcd_cert_file", help_heading = "TLS to the live etcd")]
    etcd_key_file: Option<PathBuf>,
}

impl Import {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let live = self.common.connect(&self.from).await?;
        let (store, here) = self.common.open().await?;
        self.common.copy(&live, &here).await?;
        close(store, here).await;
        Ok(())
    }
}

impl Export {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let live = self.common.connect(&self.to).await?;
        let (store, here) = self.common.open().await?;
        self.common.copy(&here, &live).await?;
        close(store, here).await;
        Ok(())
    }
}

/// Closes the database once the in-process server has released it, which it does with its last client.
async fn close(store: Store, here: Client) {
    drop(here);
    if tokio::time::timeout(Duration::from_secs(5), store.close()).await.is_err() {
        tracing::debug!("the database was still in use; it is closed with the process");
    }
}

impl Common {
    async fn connect(&self, address: &str) -> anyhow::Result<Client> {
        let identity = self.etcd_cert_file.clone().zip(self.etcd_key_file.clone());
        Ok(Client::connect(address, &ClientTls { ca: self.etcd_ca_file.clone(), identity }).await?)
    }

    /// Opens the database behind an in-process etcd server.
    async fn open(&self) -> anyhow::Result<(Store, Client)> {
        let store = self.data.open(0).await?;
        let server = Server::new(store.clone(), Options::default()).await?;
        Ok((store, Client::in_process(&server).await?))
    }

    async fn copy(&self, source: &Client, target: &Client) -> anyhow::Result<()> {
        let (started, mut printed) = (Instant::now(), None);
        let options = copy::Options { delete_extra: self.delete_extra };
        let copied = copy::copy(source, target, options, |progress| {
            // A terminal gets one line that changes, a log a new line from time to time.
            let every = if std::io::stderr().is_terminal() { 0.2 } else { 5.0 };
            let due =
                printed.is_none_or(|printed: Instant| printed.elapsed() > Duration::from_secs_f64(every));
            if due || progress.done == progress.total {
                printed = Some(Instant::now());
                print_progress(&progress);
            }
        });
        let copied = tokio::select! {
            copied = copied => copied?,
            () = crate::shutdown::requested() => bail!("interrupted; run the same command again to resume"),
        };
        eprintln!();
        println!(
            "copied and verified {} keys at revision {} in {:.1} s: {} written, {} deleted, {} expired during the copy",
            copied.total,
            copied.revision,
            started.elapsed().as_secs_f64(),
            copied.written,
            copied.deleted,
            copied.expired,
        );
        Ok(())
    }
}

fn print_progress(progress: &Progress) {
    let phase = if progress.verifying { "verifying" } else { "copying" };
    let percent = (progress.done * 100).checked_div(progress.total).unwrap_or(100);
    let end = if std::io::stderr().is_terminal() { '\r' } else { '\n' };
    eprint!(
        "{phase:<10}{percent:>3}%  {} of {} keys, {} written   {end}",
        progress.done, progress.total, progress.written
    );
    let _ = std::io::stderr().flush();
}
