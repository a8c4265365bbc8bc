//! `slate-cli`: see `slate-cli --help`.

mod commands;
mod output;
mod prompt;
mod transfer;

use std::{io::IsTerminal as _, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use slate_client::{Client, Options};

use crate::output::Format;

/// A prompt for Slate, and import and export of JSON lines.
///
/// Without a subcommand a prompt starts; `help` there lists its commands. Tab completes commands and collections.
#[derive(Debug, Parser)]
#[command(name = "slate-cli", version)]
struct Arguments {
    /// Address of the server
    #[arg(long, env = "SLATE_ADDR", default_value = "127.0.0.1:9600")]
    addr: String,
    /// File with the server's token
    #[arg(long, env = "SLATE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Certificate of the server's authority in PEM; turns TLS on
    #[arg(long, env = "SLATE_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// Form of results; a table at a terminal, JSON otherwise
    #[arg(long)]
    output: Option<Format>,
    /// Seconds that a request may take
    #[arg(long, default_value_t = 60)]
    timeout_s: u64,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run one command of the prompt and exit: `slate-cli run find accounts '{"status": "active"}'`; `run help` lists them
    Run {
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Read JSON lines from a file, or from standard input, into a collection
    Import {
        /// Collection, created if need be
        collection: String,
        /// File of JSON lines
        file: Option<PathBuf>,
        /// Replace documents with the same _id instead of failing
        #[arg(long)]
        upsert: bool,
    },
    /// Write a collection as JSON lines to a file, or to standard output
    Export {
        /// Collection
        collection: String,
        /// File of JSON lines
        file: Option<PathBuf>,
        /// Filter, as JSON
        #[arg(long, default_value = "{}")]
        filter: String,
    },
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        // Without the backtrace that returning it would print: it is for the user, not for us.
        Err(error) => {
            eprintln!("slate-cli: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let client = runtime.block_on(async { connect(&arguments) })?;
    let format = arguments.output.unwrap_or(match std::io::stdout().is_terminal() {
        true => Format::Table,
        false => Format::Json,
    });
    match arguments.action {
        None => prompt::run(&runtime, &client, format),
        Some(Action::Run { words }) => {
            let result = runtime.block_on(commands::run(&client, &words))?;
            print!("{}", output::render(&result, format));
            Ok(())
        }
        Some(Action::Import { collection, file, upsert }) => {
            runtime.block_on(transfer::import(&client, &collection, file.as_deref(), upsert))
        }
        Some(Action::Export { collection, file, filter }) => {
            runtime.block_on(transfer::export(&client, &collection, file.as_deref(), &filter))
        }
    }
}

fn connect(arguments: &Arguments) -> anyhow::Result<Client> {
    let token = match &arguments.token_file {
        Some(path) => {
            let token = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Some(token.trim().to_owned())
        }
        None => None,
    };
    let tls = match &arguments.tls_ca {
        Some(path) => {
            let host = arguments.addr.rsplit_once(':').map_or(arguments.addr.as_str(), |(host, _)| host);
            Some((Arc::new(tls_config(path)?), host.to_owned()))
        }
        None => None,
    };
    let timeout = Duration::from_secs(arguments.timeout_s.max(1));
    Ok(Client::new(Options { token, tls, timeout, connections: 1, ..Options::new(arguments.addr.clone()) }))
}

fn tls_config(path: &std::path::Path) -> anyhow::Result<rustls::ClientConfig> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
