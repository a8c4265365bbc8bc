//! `orlop compose run`: the controller against a cluster, with kro's flags.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use orlop_compose::{Metrics, Settings, graph::Limits};
use orlop_controllers::runtime::{LeaderElection, Manager, candidate_name};
use orlop_net::Address;
use prometheus_client::registry::Registry;

use super::{client, register};
use crate::shutdown;

#[derive(Debug, clap::Args)]
pub(super) struct Run {
    #[command(flatten)]
    options: Options,

    /// Address to serve /metrics on in plain HTTP.
    #[arg(long, value_name = "ADDRESS", help_heading = "Observability")]
    metrics_bind_address: Option<Address>,

    /// Address to serve /healthz and /readyz on in plain HTTP.
    #[arg(long, value_name = "ADDRESS", help_heading = "Observability")]
    health_probe_bind_address: Option<Address>,

    /// Run only while this process holds the lease. Needed where several run.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL", help_heading = "Leader election")]
    leader_elect: bool,

    /// Namespace of the lease.
    #[arg(long, default_value = "kube-system", value_name = "NAME", help_heading = "Leader election")]
    leader_election_namespace: String,

    /// Time after which a lease that is not renewed is free.
    #[arg(long, default_value = "15s", value_parser = orlop_duration::parse_unsigned, value_name = "TIME", help_heading = "Leader election")]
    leader_election_lease_duration: Duration,

    /// Time after which a holder that cannot renew gives up.
    #[arg(long, default_value = "10s", value_parser = orlop_duration::parse_unsigned, value_name = "TIME", help_heading = "Leader election")]
    leader_election_renew_deadline: Duration,

    /// Time between attempts to acquire or renew.
    #[arg(long, default_value = "2s", value_parser = orlop_duration::parse_unsigned, value_name = "TIME", help_heading = "Leader election")]
    leader_election_retry_period: Duration,
}

/// Options of the controller itself.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Delete a generated CRD, and with it its instances, when its definition is deleted.
    #[arg(long)]
    allow_crd_deletion: bool,

    /// Service account of the instance's namespace that children are applied as where a definition names none. Without
    /// it they are applied with the controller's own rights.
    #[arg(long, value_name = "NAME")]
    default_service_account: Option<String>,

    /// Definitions and instances reconciled at once.
    #[arg(long, default_value_t = 16, value_name = "COUNT")]
    dynamic_controller_concurrent_reconciles: usize,

    /// Most items of a collection.
    #[arg(long, default_value_t = 1000, value_name = "COUNT", help_heading = "Limits")]
    rgd_max_collection_size: usize,

    /// Most dimensions of forEach.
    #[arg(long, default_value_t = 10, value_name = "COUNT", help_heading = "Limits")]
    rgd_max_collection_dimension_size: usize,

    /// GraphRevisions kept per definition.
    #[arg(long, default_value_t = 5, value_name = "COUNT", help_heading = "Limits")]
    rgd_max_graph_revisions: usize,

    /// Features to switch on: InstanceConditionEvents=true, InstanceConditionMetrics=true.
    #[arg(long, value_delimiter = ',', value_name = "NAME=BOOL")]
    feature_gates: Vec<String>,
}

impl Options {
    fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = Settings {
            workers: self.dynamic_controller_concurrent_reconciles,
            allow_crd_deletion: self.allow_crd_deletion,
            revisions_max: self.rgd_max_graph_revisions,
            limits: Limits {
                collection_max: self.rgd_max_collection_size,
                dimensions_max: self.rgd_max_collection_dimension_size,
            },
            default_service_account: self.default_service_account.clone(),
            ..Settings::default()
        };
        for gate in self.feature_gates.iter().filter(|gate| !gate.is_empty()) {
            let (name, value) = gate.split_once('=').with_context(|| format!("{gate:?} is not NAME=BOOL"))?;
            let value: bool = value.parse().with_context(|| format!("{gate:?} is not NAME=BOOL"))?;
            match name {
                "InstanceConditionEvents" => settings.condition_events = value,
                "InstanceConditionMetrics" => settings.condition_metrics = value,
                // Always on here.
                "CELOmitFunction" => {}
                _ => bail!("unrecognized feature gate: {name}"),
            }
        }
        Ok(settings)
    }
}

impl Run {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let settings = self.options.settings()?;
        let client = client().await?;
        let election = self.leader_elect.then(|| LeaderElection {
            namespace: self.leader_election_namespace,
            lease_duration: self.leader_election_lease_duration,
            renew_deadline: self.leader_election_renew_deadline,
            retry_period: self.leader_election_retry_period,
            ..LeaderElection::new(candidate_name())
        });
        let mut manager = Manager::new(client).with_leader_election(election);
        let metrics = Metrics::default();
        register(&mut manager, settings, metrics.clone());
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        manager.metrics().register(&mut registry);
        let registry = Arc::new(registry);
        for address in [&self.metrics_bind_address, &self.health_probe_bind_address].into_iter().flatten() {
            // Candidates that do not lead are ready to.
            orlop_observe::serve(address, registry.clone(), Arc::new(|| true))
                .await
                .with_context(|| format!("cannot listen on {address}"))?;
        }
        manager.run(shutdown::requested()).await;
        Ok(())
    }
}
