//! `slate-operator`: see `slate-operator --help`.

use std::{io::IsTerminal as _, path::PathBuf};

use clap::Parser;
use slate_operator::{Addresses, Options, manifests};

/// Runs Slate servers and their collections on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "slate-operator", version)]
enum Command {
    /// Print the CustomResourceDefinitions and RBAC objects
    Crd,
    /// Run the operator
    Run {
        /// Kubeconfig; by default the cluster that this runs in, or KUBECONFIG
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// Image of slate-server for Servers that name none
        #[arg(long, env = "SLATE_IMAGE")]
        image: String,
        /// Namespace of the lease for leader election
        #[arg(long, env = "POD_NAMESPACE", default_value = "slate-system")]
        lease_namespace: String,
        /// Run without leader election
        #[arg(long)]
        no_leader_election: bool,
    },
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        // Without the backtrace that returning it would print: it is for the user, not for us.
        Err(error) => {
            eprintln!("slate-operator: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let command = Command::parse();
    let Command::Run { kubeconfig, image, lease_namespace, no_leader_election } = command else {
        print!("{}", manifests::all());
        return Ok(());
    };
    tracing_subscriber::fmt()
        .with_ansi(std::io::stdout().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .init();
    // rustls wants to know which of its providers to use.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = match kubeconfig {
            Some(path) => {
                let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
                    .await?
            }
            None => kube::Config::infer().await?,
        };
        let client = kube::Client::try_from(config)?;
        let options = Options {
            image,
            lease_namespace: (!no_leader_election).then_some(lease_namespace),
            addresses: Addresses::Services,
        };
        slate_operator::run(client, options, stop_signal()).await?;
        Ok(())
    })
}

async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
