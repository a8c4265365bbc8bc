//! `orlop-aws`: controllers of ACK's kinds and of the Bridge's.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use clap::Parser;
use orlop_api::labels;
use orlop_aws::{
    Egress, Gates, NAME, Observer, Settings, definitions, iam_policy, network_policy, rbac, run,
};
use orlop_client::{Client, Config};
use orlop_controllers::runtime::{LeaderElection, Manager, candidate_name};
use orlop_net::Address;
use prometheus_client::registry::Registry;
use serde_json::Value;

/// AWS from Kubernetes: controllers of ACK's kinds and of the Bridge's, against any Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "orlop-aws", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the controllers against the cluster of the kubeconfig, or of the pod they run in.
    Run(Box<Run>),
    /// Print the CRDs. The controllers install them themselves.
    Crd(Kinds),
    /// Print ServiceAccount, roles and NetworkPolicy.
    Rbac {
        #[command(flatten)]
        kinds: Kinds,
        /// Namespace of the controllers.
        #[arg(long, default_value = "ack-system")]
        namespace: String,
        /// Namespaces to write in, separated by commas: each gets a RoleBinding. None is all.
        #[arg(long, value_delimiter = ',')]
        watch_namespace: Vec<String>,
        /// Grant what FieldExports need: ConfigMaps and Secrets.
        #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
        enable_field_export_reconciler: bool,
        /// CIDR blocks of the API server, separated by commas, that the NetworkPolicy allows. None is any address.
        #[arg(long, value_delimiter = ',')]
        api_server_cidr: Vec<String>,
        /// CIDR blocks of AWS' endpoints that the NetworkPolicy allows. None is any address.
        #[arg(long, value_delimiter = ',')]
        aws_cidr: Vec<String>,
    },
    /// Print the least-privilege IAM policy of the kinds.
    IamPolicy {
        #[command(flatten)]
        kinds: Kinds,
        /// Account whose resources the policy names.
        #[arg(long, default_value = "*")]
        account: String,
        /// Region whose resources the policy names.
        #[arg(long, default_value = "*")]
        region: String,
    },
}

#[derive(Debug, clap::Args)]
struct Kinds {
    /// Kinds to reconcile, separated by commas. Others are left to other controllers.
    #[arg(long, visible_alias = "reconcile-resources", value_delimiter = ',')]
    kinds: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Run {
    #[command(flatten)]
    kinds: Kinds,
    /// Region of objects that name none.
    #[arg(long, env = "AWS_REGION")]
    aws_region: Option<String>,
    /// Endpoint of all services, in place of AWS' own.
    #[arg(long)]
    aws_endpoint_url: Option<String>,
    /// Endpoint of STS.
    #[arg(long)]
    aws_identity_endpoint_url: Option<String>,
    /// Allow endpoints without TLS.
    #[arg(long)]
    allow_unsafe_aws_endpoint_urls: bool,
    /// Seconds that a request may take; 0 is no limit.
    #[arg(long, default_value_t = 60)]
    http_client_timeout: u64,
    /// Factor on the call rates that AWS documents; 0 is no limit.
    #[arg(long, default_value_t = 1.0)]
    call_rate_scale: f64,
    /// Namespaces to watch, separated by commas. None is all.
    #[arg(long, value_delimiter = ',')]
    watch_namespace: Vec<String>,
    /// Label selector of the objects to reconcile. None is all.
    #[arg(long, default_value = "")]
    watch_selectors: String,
    /// Policy for AWS resources when their objects are deleted.
    #[arg(long, default_value = "delete", value_parser = ["delete", "retain"])]
    deletion_policy: String,
    /// Seconds after which a deletion that AWS does not let happen is given up; 0 is never.
    #[arg(long, default_value_t = 1800)]
    deletion_timeout_seconds: u64,
    /// Resync period in seconds; 0 is 10 hours.
    #[arg(long, default_value_t = 0)]
    reconcile_default_resync_seconds: u64,
    /// The same for a kind: Kind=seconds. May be given several times.
    #[arg(long, value_name = "KIND=SECONDS")]
    reconcile_resource_resync_seconds: Vec<String>,
    /// Objects reconciled at once.
    #[arg(long, default_value_t = 16)]
    reconcile_default_max_concurrent_syncs: usize,
    /// The same for a kind: Kind=number. May be given several times.
    #[arg(long, value_name = "KIND=NUMBER")]
    reconcile_resource_max_concurrent_syncs: Vec<String>,
    /// Tags of every resource: key=value, separated by commas.
    #[arg(long, value_delimiter = ',')]
    resource_tags: Vec<String>,
    /// Allow references to other namespaces.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    enable_cross_namespace: bool,
    /// Roles of other accounts by ConfigMap.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    enable_carm: bool,
    /// Reconcile FieldExports.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    enable_field_export_reconciler: bool,
    /// Features, separated by commas: ResourceAdoption, ReadOnlyResources, TeamLevelCARM, ServiceLevelCARM and
    /// IAMRoleSelector, each =true or =false. All are on but the last.
    #[arg(long, value_delimiter = ',', value_name = "NAME=BOOL")]
    feature_gates: Vec<String>,
    /// Accepted for ACK's sake: buckets are always addressed by path.
    #[arg(long, hide = true)]
    aws_endpoint_use_path_style: bool,
    /// Roles by IAMRoleSelector. Needs --enable-carm=false.
    #[arg(long)]
    enable_iam_role_selector: bool,
    /// Group of the Bridge's kinds.
    #[arg(long, default_value = "bridge.ack.tubi.internal")]
    bridge_group: String,
    /// Name of the cluster in the tags of what the Bridge makes. Clusters that share an account need different ones.
    #[arg(long, default_value = "")]
    cluster_name: String,
    /// Address of /metrics, /healthz, /livez and /readyz; none if empty.
    #[arg(long, default_value = "0.0.0.0:8080")]
    metrics_addr: String,
    /// Address of the probes, if it is another one.
    #[arg(long, default_value = "0.0.0.0:8081")]
    healthz_addr: String,
    /// Factor on the fixed requeue delays. For simulators, which are quicker.
    #[arg(long, default_value_t = 1.0, hide = true)]
    wait_scale: f64,
    /// Namespace of the ConfigMaps with roles.
    #[arg(long, env = "ACK_SYSTEM_NAMESPACE", default_value = "ack-system")]
    system_namespace: String,
    /// Run only with a lease, so that one of several replicas acts.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    enable_leader_election: bool,
    /// Run without a lease: for a single process.
    #[arg(long, conflicts_with = "enable_leader_election")]
    no_leader_election: bool,
}

impl Run {
    fn settings(&self) -> anyhow::Result<Settings> {
        let Some(region) = self.aws_region.clone().filter(|region| !region.is_empty()) else {
            bail!(
                "unable to start service controller as AWS region is missing. Please pass --aws-region flag"
            );
        };
        for endpoint in [&self.aws_endpoint_url, &self.aws_identity_endpoint_url].into_iter().flatten() {
            if !endpoint.starts_with("https://") && !self.allow_unsafe_aws_endpoint_urls {
                bail!(
                    "using an unsafe endpoint is not allowed. Set --allow-unsafe-aws-endpoint-urls to allow {endpoint}"
                );
            }
        }
        let (gates, role_selectors) = self.gates()?;
        if role_selectors && self.enable_carm {
            bail!("--enable-iam-role-selector needs --enable-carm=false");
        }
        let default = Settings::default();
        let pair = |text: &String| {
            let (key, value) = text.split_once('=').with_context(|| format!("{text} is not key=value"))?;
            anyhow::Ok((key.to_owned(), value.to_owned()))
        };
        let mut resync_of = BTreeMap::new();
        for text in &self.reconcile_resource_resync_seconds {
            let (kind, seconds) = pair(text)?;
            let seconds = seconds.parse().with_context(|| format!("{text}: not a number of seconds"))?;
            resync_of.insert(kind, Duration::from_secs(seconds));
        }
        let mut workers_of = BTreeMap::new();
        for text in &self.reconcile_resource_max_concurrent_syncs {
            let (kind, number) = pair(text)?;
            let number: usize = number.parse().with_context(|| format!("{text}: not a number"))?;
            workers_of.insert(kind, number.max(1));
        }
        Ok(Settings {
            region,
            endpoint: self.aws_endpoint_url.clone(),
            identity_endpoint: self.aws_identity_endpoint_url.clone(),
            http_timeout: Duration::from_secs(self.http_client_timeout),
            rate_scale: self.call_rate_scale,
            kinds: self.kinds.kinds.clone(),
            namespaces: self.watch_namespace.clone(),
            retain: self.deletion_policy == "retain",
            resync: match self.reconcile_default_resync_seconds {
                0 => default.resync,
                seconds => Duration::from_secs(seconds),
            },
            resync_of,
            workers: self.reconcile_default_max_concurrent_syncs.max(1),
            tags: match self.resource_tags.is_empty() {
                true => default.tags,
                false => self.resource_tags.iter().map(pair).collect::<anyhow::Result<_>>()?,
            },
            cross_namespace: self.enable_cross_namespace,
            carm: self.enable_carm,
            role_selectors,
            selector: labels::parse(&self.watch_selectors)
                .map_err(|error| anyhow::anyhow!("--watch-selectors: {error}"))?,
            workers_of,
            field_exports: self.enable_field_export_reconciler,
            gates,
            system_namespace: self.system_namespace.clone(),
            delete_timeout: Duration::from_secs(self.deletion_timeout_seconds),
            bridge_group: self.bridge_group.clone(),
            cluster_name: self.cluster_name.clone(),
            retry_base: default.retry_base.mul_f64(self.wait_scale.max(0.0)),
            wait_scale: self.wait_scale,
            ..default
        })
    }

    /// Returns the feature gates, and whether roles are selected by IAMRoleSelectors.
    fn gates(&self) -> anyhow::Result<(Gates, bool)> {
        let (mut gates, mut role_selectors) = (Gates::default(), self.enable_iam_role_selector);
        for text in &self.feature_gates {
            let gate = text.split_once('=').and_then(|(name, enabled)| Some((name, enabled.parse().ok()?)));
            match gate {
                Some(("IAMRoleSelector", enabled)) => role_selectors = enabled,
                Some((name, enabled)) if gates.set(name, enabled) => {}
                _ => bail!("--feature-gates: {text} is no feature"),
            }
        }
        Ok((gates, role_selectors))
    }

    async fn run(&self) -> anyhow::Result<()> {
        let settings = self.settings()?;
        let config = Config::infer().context("no cluster is configured")?;
        let client = Client::connect(config).await?;
        let elects = self.enable_leader_election && !self.no_leader_election;
        let election = LeaderElection::new(candidate_name());
        let mut manager = Manager::new(client).with_leader_election(elects.then_some(election));
        let observer = Observer::default();
        let mut registry = Registry::default();
        observer.register(&mut registry);
        manager.metrics().register(&mut registry);
        self.observe(Arc::new(registry), observer.clone()).await?;
        manager.register(NAME, move |context| run(context, settings.clone(), observer.clone()));
        manager.run(stopped()).await;
        Ok(())
    }
}

impl Run {
    /// Serves metrics and probes. A replica that does not lead is ready to.
    async fn observe(&self, registry: Arc<Registry>, observer: Observer) -> anyhow::Result<()> {
        let mut addresses = vec![&self.metrics_addr, &self.healthz_addr];
        addresses.dedup();
        for text in addresses.into_iter().filter(|text| !text.is_empty()) {
            let address: Address = text.parse().with_context(|| format!("{text} is no address"))?;
            let observer = observer.clone();
            orlop_observe::serve(&address, registry.clone(), Arc::new(move || observer.is_ready()))
                .await
                .with_context(|| format!("cannot listen on {address}"))?;
        }
        Ok(())
    }
}

/// Waits for a signal to stop.
async fn stopped() {
    let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    match terminate {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

fn print(objects: &[Value]) -> anyhow::Result<()> {
    for object in objects {
        println!("---\n{}", serde_saphyr::to_string(object)?.trim_end());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let with = |kinds: Kinds| Settings { kinds: kinds.kinds, ..Settings::default() };
    match Arguments::parse().command {
        Command::Run(arguments) => arguments.run().await,
        Command::Crd(kinds) => print(&definitions(&with(kinds))),
        Command::Rbac {
            kinds,
            namespace,
            watch_namespace,
            enable_field_export_reconciler,
            api_server_cidr,
            aws_cidr,
        } => {
            let field_exports = enable_field_export_reconciler;
            let settings = Settings { namespaces: watch_namespace, field_exports, ..with(kinds) };
            let mut objects = rbac(&settings, &namespace);
            let egress = Egress { api_server: api_server_cidr, aws: aws_cidr };
            objects.push(network_policy(&namespace, &egress));
            print(&objects)
        }
        Command::IamPolicy { kinds, account, region } => {
            let settings = Settings { region, ..with(kinds) };
            println!("{}", serde_json::to_string_pretty(&iam_policy(&settings, &account))?);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: &[&str]) -> anyhow::Result<Settings> {
        let all = [&["orlop-aws", "run", "--aws-region", "eu-west-1"], flags].concat();
        match Arguments::try_parse_from(all)?.command {
            Command::Run(run) => run.settings(),
            other => bail!("{other:?}"),
        }
    }

    #[test]
    fn flags_of_ack_are_understood() {
        let flags = [
            "--watch-selectors=team in (a,b)",
            "--reconcile-resource-max-concurrent-syncs=Function=3",
            "--reconcile-resource-resync-seconds=Table=60",
            "--enable-field-export-reconciler=false",
            "--feature-gates=ReadOnlyResources=false,IAMRoleSelector=true",
            "--enable-carm=false",
            "--enable-leader-election",
            "--aws-endpoint-use-path-style",
            "--deletion-policy=retain",
            "--reconcile-resources=Function,Table",
        ];
        let settings = settings(&flags).expect("settings");
        assert_eq!(settings.workers_of["Function"], 3);
        assert_eq!(settings.resync_of["Table"], Duration::from_secs(60));
        assert!(
            settings.selector.matches_object(&serde_json::json!({"metadata": {"labels": {"team": "a"}}}))
        );
        assert!(!settings.selector.matches_object(&serde_json::json!({"metadata": {}})));
        assert!(!settings.field_exports && settings.role_selectors && settings.retain);
        assert!(!settings.gates.read_only && settings.gates.adoption);
        assert_eq!(settings.kinds, ["Function", "Table"]);
    }

    #[test]
    fn wrong_flags_are_refused() {
        for flags in [
            &["--watch-selectors=a in"][..],
            &["--feature-gates=Nothing=true"],
            &["--feature-gates=ReadOnlyResources"],
            &["--enable-iam-role-selector"],
            &["--reconcile-resource-max-concurrent-syncs=Function"],
            &["--aws-endpoint-url=http://127.0.0.1"],
            &["--deletion-policy=orphan"],
        ] {
            assert!(settings(flags).is_err(), "{flags:?}");
        }
    }
}
