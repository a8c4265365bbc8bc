//! `orlop encrypt`: encryption of what is in the database already.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use orlop_encryption::{Encryption, KmsTiming};
use orlop_server::{
    auth::issuer::Issuer,
    cluster::Cluster,
    registry::Kinds,
    rekey::{Progress, rekey},
};
use orlop_store::{Config, Endpoint, Store};

/// Width of the progress bar.
const BAR: usize = 30;
/// Interval of reports on a terminal, and elsewhere.
const BAR_INTERVAL: Duration = Duration::from_millis(50);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  orlop encrypt --rekey --encryption-provider-config encryption.yaml
      Encrypts all objects of the listed resources in ./orlop-data with the first provider and key of the file,
      and overwrites what was in clear. Run it after the first configuration and after each change of the first
      key, once all servers use the file; then the old key can be removed from it.
  orlop encrypt --rekey --encryption-provider-config encryption.yaml --endpoint postgres://orlop@db/orlop
      The same on PostgreSQL, where dead rows and backups need care of their own: see docs/encryption.md.";

/// Encrypt what is in the database already.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Encrypt {
    /// Write all objects again that are not encrypted with the first provider and key of their resource. Servers
    /// may go on meanwhile. An interrupted run continues when it is started again.
    #[arg(long, required = true)]
    rekey: bool,

    /// Providers and keys (apiserver.config.k8s.io/v1 EncryptionConfiguration).
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: PathBuf,

    /// Directory of the database.
    #[arg(long, env = "ORLOP_DATA_DIR", default_value = "orlop-data", value_name = "DIR")]
    data_dir: PathBuf,

    /// Database: sqlite:///path/to/file.db or postgres://user@host/database [default: DATA_DIR/orlop.db].
    #[arg(long, env = "ORLOP_ENDPOINT", value_name = "URL", hide_env_values = true)]
    endpoint: Option<String>,
}

impl Encrypt {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        debug_assert!(self.rekey);
        let endpoint = match &self.endpoint {
            Some(text) => Endpoint::parse(text)?,
            None => Endpoint::Sqlite(self.data_dir.join("orlop.db")),
        };
        if let Endpoint::Sqlite(path) = &endpoint
            && !path.exists()
        {
            bail!("there is no database at {}", path.display());
        }
        let encryption = Encryption::load(&self.encryption_provider_config, KmsTiming::default()).await?;
        let mut config = Config::new(endpoint.clone());
        config.transformer = Some(encryption.clone());
        let store = Store::open(config).await.with_context(|| format!("cannot open {endpoint}"))?;
        if let Err(error) = encryption.open_index(&store).await {
            bail!("{error}");
        }
        // Tokens are not issued here.
        let cluster = Arc::new(Cluster::new(store.clone(), Kinds::builtin(), Issuer::generate()?));
        let mut bar = Bar::new();
        let progress = rekey(&cluster, &*encryption, |progress| bar.show(progress)).await;
        cluster.close();
        drop(cluster);
        let progress = progress.map_err(|status| anyhow::anyhow!(status.message))?;
        bar.end(&progress);
        for (key, reason) in &progress.failed {
            eprintln!("{key}: {reason}");
        }
        if progress.failed.is_empty() {
            encryption.forget_unused_index_key(&store).await.map_err(anyhow::Error::msg)?;
        }
        let purged = store.purge().await.context("cannot delete what was in clear")?;
        store.close().await;
        if !progress.failed.is_empty() {
            bail!("{} objects could not be read or written: see above", progress.failed.len());
        }
        println!("{}", ending(&progress, purged));
        Ok(())
    }
}

fn ending(progress: &Progress, purged: Option<bool>) -> String {
    let Progress { seen, rewritten, .. } = progress;
    let rest = match purged {
        Some(true) => {
            "History is deleted and the database file rewritten: nothing old is left in it or its log."
        }
        Some(false) => {
            "History is deleted and the database file rewritten. A server still uses its write-ahead log: stop it \
             once, or run this again, to empty the log."
        }
        None => {
            "History is deleted. Dead rows, the write-ahead log, replicas and backups of PostgreSQL are left to you: \
             see docs/encryption.md."
        }
    };
    format!("{rewritten} of {seen} objects were written again. {rest}")
}

/// A progress bar on a terminal, lines elsewhere.
struct Bar {
    is_terminal: bool,
    reported: Instant,
}

impl Bar {
    fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), reported: Instant::now() }
    }

    fn show(&mut self, progress: &Progress) {
        let interval = if self.is_terminal { BAR_INTERVAL } else { LINE_INTERVAL };
        if self.reported.elapsed() < interval && progress.seen != progress.total {
            return;
        }
        self.reported = Instant::now();
        let Progress { resource, seen, total, rewritten, .. } = progress;
        if self.is_terminal {
            let filled = usize::try_from(seen * BAR as u64 / (*total).max(1)).unwrap_or(BAR).min(BAR);
            let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
            let mut stderr = std::io::stderr().lock();
            let _ =
                write!(stderr, "\r\x1b[K[{bar}] {seen}/{total} objects, {rewritten} written, now {resource}");
            let _ = stderr.flush();
        } else {
            eprintln!("{seen}/{total} objects, {rewritten} written, now {resource}");
        }
    }

    fn end(&self, progress: &Progress) {
        if self.is_terminal && progress.total > 0 {
            eprintln!();
        }
    }
}
