//! `orlop etcd import` and `orlop etcd export`: a whole key space from or to a live etcd.

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

/// Copy everything from a live etcd (or another orlop) into this database.
///
/// Keys, values and leases come along; revisions and history do not. Stop those who write first. A copy that
/// was cut short goes on when it is run again; at the end both sides are compared.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The etcd to copy from: http://host:port, https://host:port or unix:///path.
    #[arg(long, value_name = "ADDRESS")]
    from: String,
    #[command(flatten)]
    common: Common,
}

/// Copy everything from this database to a live etcd (or another orlop).
///
/// The same as import, the other way round.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The etcd to copy to: http://host:port, https://host:port or unix:///path.
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    data: Data,

    /// Delete what the target holds and the source does not. Without this such keys end the copy.
    #[arg(long)]
    delete_extra: bool,

    /// CA (PEM) that the live etcd's certificate must be signed by.
    #[arg(long, value_name = "FILE", help_heading = "TLS to the live etcd")]
    etcd_ca_file: Option<PathBuf>,

    /// Certificate (PEM) to show to the live etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_key_file", help_heading = "TLS to the live etcd")]
    etcd_cert_file: Option<PathBuf>,

    /// Key (PEM) of that certificate.
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

/// Closes the database once the server in this process has let go of it, which it does with its last client.
async fn close(store: Store, here: Client) {
    drop(here);
    if tokio::time::timeout(Duration::from_secs(5), store.close()).await.is_err() {
        tracing::debug!("the database is closed with the process");
    }
}

impl Common {
    async fn connect(&self, address: &str) -> anyhow::Result<Client> {
        let identity = self.etcd_cert_file.clone().zip(self.etcd_key_file.clone());
        Ok(Client::connect(address, &ClientTls { ca: self.etcd_ca_file.clone(), identity }).await?)
    }

    /// The database as an etcd of its own, in this process.
    async fn open(&self) -> anyhow::Result<(Store, Client)> {
        let store = self.data.open(0).await?;
        let server = Server::new(store.clone(), Options::default()).await?;
        Ok((store, Client::in_process(&server).await?))
    }

    async fn copy(&self, source: &Client, target: &Client) -> anyhow::Result<()> {
        let (started, mut told) = (Instant::now(), None);
        let options = copy::Options { delete_extra: self.delete_extra };
        let copied = copy::copy(source, target, options, |progress| {
            // A terminal gets a line that changes, a log one every so often.
            let every = if std::io::stderr().is_terminal() { 0.2 } else { 5.0 };
            let due = told.is_none_or(|told: Instant| told.elapsed() > Duration::from_secs_f64(every));
            if due || progress.done == progress.total {
                told = Some(Instant::now());
                show(&progress);
            }
        });
        let copied = tokio::select! {
            copied = copied => copied?,
            () = crate::shutdown::asked() => bail!("cut short; run the same command again to go on"),
        };
        eprintln!();
        println!(
            "copied and verified {} keys at revision {} in {:.1} s: {} written, {} deleted, {} expired meanwhile",
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

fn show(progress: &Progress) {
    let doing = if progress.verifying { "verifying" } else { "copying" };
    let percent = (progress.done * 100).checked_div(progress.total).unwrap_or(100);
    let end = if std::io::stderr().is_terminal() { '\r' } else { '\n' };
    eprint!(
        "{doing:<10}{percent:>3}%  {} of {} keys, {} written   {end}",
        progress.done, progress.total, progress.written
    );
    let _ = std::io::stderr().flush();
}
