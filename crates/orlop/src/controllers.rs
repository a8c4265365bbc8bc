//! `orlop controllers`: Kubernetes' controllers and scheduler against any cluster, by kubeconfig.

use std::path::PathBuf;

use anyhow::Context;
use orlop_client::{Client, Config};
use orlop_controllers::{
    Defaults, Options,
    runtime::{LeaderElection, candidate_name},
};

use crate::shutdown;

const EXAMPLES: &str = "\
Examples:
  orlop controllers --kubeconfig cluster.kubeconfig
      All controllers and the scheduler, in place of kube-controller-manager and kube-scheduler.
  orlop controllers --controllers=deployment-controller,replicaset-controller,kube-scheduler
      Only these.";

/// Run controllers and the scheduler against the cluster of a kubeconfig.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Kubeconfig of the cluster [default: $KUBECONFIG, ~/.kube/config, or that of the pod it runs in].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// Controllers to run: "*" for all, "name" for one, "-name" for all but one. Those that sign tokens or certificates
    /// need the keys of an API server, and only run with "orlop serve".
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, default_value = "*", value_name = "LIST")]
    controllers: Vec<String>,

    /// Folder of nodes for volumes of the class local-path, which are made on demand. Without it there is no such class.
    #[arg(long, value_name = "DIR")]
    local_volumes: Option<PathBuf>,

    /// Run each controller only while this process holds its lease. Needed where several run.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,
}

/// Runs controllers until the process is told to stop.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let selected = orlop_controllers::select(&arguments.controllers, Defaults::Cluster)?;
    let kubeconfig = arguments.kubeconfig.clone();
    let read = move || match &kubeconfig {
        Some(path) => Config::read_from(path),
        None => Config::infer(),
    };
    let config = read().context("the controllers have no cluster: name one with --kubeconfig FILE")?;
    let (root_ca, root_ca_changes) = tokio::sync::watch::channel(config.root_ca().unwrap_or_default());
    let (client, connection) = Client::connect_replaceable(config).await?;
    let options = Options {
        root_ca: root_ca_changes.into(),
        local_volumes: arguments.local_volumes.map(std::path::absolute).transpose()?,
        ..Options::default()
    };
    let election = arguments.leader_elect.then(|| LeaderElection::new(candidate_name()));
    let manager = orlop_controllers::manager(client, &selected, &options).with_leader_election(election);
    println!("orlop controllers runs {} controllers", selected.len());
    tokio::select! {
        () = manager.run(shutdown::requested()) => {}
        () = connection.follow(read, |config| {
            let current = config.root_ca().unwrap_or_default();
            root_ca.send_if_modified(|known| std::mem::replace(known, current.clone()) != current);
        }) => {}
    }
    Ok(())
}
