//! `orlop serve`: the Kubernetes API server.

mod admission;
mod aggregation;
mod audit;
mod authentication;
mod authorization;
mod data_dir;
mod encryption;
mod flow_control;
mod hygiene;
mod identity;
mod node_ranges;
mod renewal;
mod screen;
mod tracing;
mod trust;

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use data_dir::DataDir;
use identity::Identity;
use orlop_controllers::{
    Defaults,
    runtime::{LeaderElection, candidate_name},
    service_account_tokens,
};
use orlop_server::{
    User,
    auth::{
        authentication::{Anonymous, UseTracker},
        authorization::DecisionMetrics,
        controller_manager_user, controller_user,
    },
    bootstrap::{self, bootstrap},
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
    serve::serve,
    storage::service_ranges::ServiceRanges,
    version::Version,
};
use orlop_store::{Config, Durability, Endpoint, Store};
use renewal::Renewal;
use screen::Screen;
use tokio::{net::TcpListener, sync::watch};
use trust::{MetricsTls, SharedTrust};

use crate::{background, compose, node, shutdown};

const EXAMPLES: &str = "\
Examples:
  orlop serve
      A control plane in ./orlop-data, at https://127.0.0.1:6443.
  orlop serve --data-dir /var/lib/orlop --listen 0.0.0.0:6443 --tls-san api.example.org
      Reachable from other machines, as api.example.org.
  orlop serve --endpoint postgres://orlop@db.example.org/orlop --kubeconfig ~/.kube/orlop
      On PostgreSQL, with the administrator's kubeconfig at a path of your choice.
  orlop serve --endpoint postgres://orlop@db.example.org/orlop --cluster-key-file cluster.key
      One more server of the same cluster. cluster.key is in the data directory of the first.
  orlop serve --tls-cert-file tls.crt --tls-key-file tls.key
      With a serving certificate of your own.
  orlop serve --insecure-listen 127.0.0.1:8080
      Also plain HTTP, on loopback only:
      curl -H \"Authorization: Bearer $(cat orlop-data/pki/admin.token)\" http://127.0.0.1:8080/api/v1/namespaces
  orlop serve --controllers=-garbage-collector-controller,-namespace-controller
      Leaves these controllers to a kube-controller-manager.
  orlop serve --controllers=*
      Deployments make pods, and the scheduler binds them to the nodes that join.
  orlop serve --ephemeral
      A server for a test: in memory, on a free port, deleted with its process.
  orlop serve --ephemeral --node --image web=./target/debug/web
      A cluster in one process tree: pods with the image web run that program.";

/// Limit on closing the store once no request is served any more.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Range of cluster IPs without a node in the process.
const DEFAULT_SERVICE_RANGE: &str = "10.0.0.0/16";

/// Name of the health check of the controllers' start.
const CONTROLLERS: &str = "start-orlop-controllers";

/// Starts a control plane that kubectl and every Kubernetes client can use. Without options it stores
/// everything in ./orlop-data and listens on https://127.0.0.1:6443.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Directory of the database, the cluster key, the administrator's token and the kubeconfig. One server
    /// uses it at a time.
    #[arg(long, env = "ORLOP_DATA_DIR", default_value = "orlop-data", value_name = "DIR")]
    data_dir: PathBuf,

    /// Address and port to listen on [default: 127.0.0.1:6443; with --ephemeral a free port].
    #[arg(long, env = "ORLOP_LISTEN", value_name = "ADDR:PORT", value_parser = address)]
    listen: Option<SocketAddr>,

    /// Also listen here without TLS. Must be a loopback address. Requests need a bearer token, such as the one
    /// in DATA_DIR/pki/admin.token (kubectl sends none without TLS).
    #[arg(long, value_name = "ADDR:PORT", value_parser = loopback)]
    insecure_listen: Option<SocketAddr>,

    /// File to write the administrator's kubeconfig to, mode 0600 [default: DATA_DIR/kubeconfig].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// Database: sqlite:///path/to/file.db, postgres://user@host/database, or memory
    /// [default: DATA_DIR/orlop.db].
    #[arg(long, env = "ORLOP_ENDPOINT", value_name = "URL", hide_env_values = true)]
    endpoint: Option<String>,

    /// Durability of acknowledged writes: "full" survives a power failure; "relaxed" only a crash of this
    /// process, and does not wait for the disk.
    #[arg(long, default_value = "full", value_parser = ["full", "relaxed"])]
    durability: String,

    /// Store everything in memory, listen on a free port, print one line of JSON when ready: a server for
    /// tests.
    #[arg(long)]
    ephemeral: bool,

    /// Controllers to run: "*" for all, "name" for one, "-name" for all of the default but one. The default is
    /// garbage-collector-controller, namespace-controller, serviceaccount-controller,
    /// serviceaccount-token-controller, legacy-serviceaccount-token-cleaner-controller,
    /// root-ca-certificate-publisher-controller, kube-apiserver-serving-clustertrustbundle-publisher-controller,
    /// clusterrole-aggregation-controller,
    /// certificatesigningrequest-signing-controller,
    /// certificatesigningrequest-approving-controller, certificatesigningrequest-cleaner-controller,
    /// podcertificaterequest-cleaner-controller, bootstrap-signer-controller, token-cleaner-controller,
    /// validatingadmissionpolicy-status-controller and resourcequota-controller: workloads are stored, and nobody acts on them. "*" adds kube-controller-manager's
    /// controllers of workloads and the scheduler
    /// (docs/workloads.md lists them), and is the default with --node. Of several servers on one database one runs
    /// each.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, value_name = "LIST")]
    controllers: Vec<String>,

    /// Range that cluster IPs of services are allocated from, or two, one of IPv4 and one of IPv6, for a dual-stack
    /// cluster; the first is of the default family. Its first address is the API server's. It cannot change once the
    /// cluster exists, and must be the same on all servers of the cluster. ServiceCIDR objects add ranges [default:
    /// 10.0.0.0/16; with --node 127.128.0.0/16].
    #[arg(long, value_name = "CIDR[,CIDR]", help_heading = "Services")]
    service_cluster_ip_range: Option<String>,

    /// Range that node ports of services are allocated from.
    #[arg(long, default_value = "30000-32767", value_name = "FIRST-LAST", help_heading = "Services")]
    service_node_port_range: String,

    /// Also run the controller of ResourceGraphDefinitions (see "orlop compose").
    #[arg(long)]
    compose: bool,

    /// Rights of that controller.
    #[arg(long, value_enum, default_value_t, requires = "compose")]
    compose_rights: compose::Rights,

    /// Time to go on serving after SIGTERM while /readyz fails, so that load balancers notice.
    #[arg(long, default_value = "0", value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    shutdown_delay_duration: Duration,

    /// Address that nodes and pods reach this server at [default: the one listened on].
    #[arg(long, value_name = "ADDR")]
    advertise_address: Option<IpAddr>,

    /// Version that /version reports as gitVersion, vX.Y.Z with a suffix. The numbers must be those of the API that is
    /// served [default: with the suffix +orlop and Orlop's own version].
    #[arg(long, value_name = "VERSION")]
    reported_version: Option<Version>,

    /// Also run a node in this process: pods run as processes of this machine.
    #[arg(long, help_heading = "Node")]
    node: bool,

    #[command(flatten)]
    node_options: node::Options,

    #[command(flatten)]
    node_ranges: node_ranges::NodeRangeOptions,

    #[command(flatten)]
    identity: identity::Options,

    #[command(flatten)]
    authorization: authorization::AuthorizationOptions,

    #[command(flatten)]
    admission: admission::AdmissionOptions,

    #[command(flatten)]
    audit: audit::AuditOptions,

    #[command(flatten)]
    authentication: authentication::AuthenticationFlags,

    #[command(flatten)]
    aggregation: aggregation::AggregationOptions,

    #[command(flatten)]
    encryption: encryption::EncryptionOptions,

    #[command(flatten)]
    flow_control: flow_control::FlowControlFlags,

    #[command(flatten)]
    hygiene: hygiene::HygieneOptions,

    #[command(flatten)]
    tracing: tracing::TracingOptions,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    let shutdown = shutdown::requested();
    let default_controllers = if arguments.node { Defaults::Cluster } else { Defaults::ApiServer };
    let selected = orlop_controllers::select(&arguments.controllers, default_controllers)?;
    if let Some(option) = arguments.node_options.given().filter(|_| !arguments.node) {
        bail!("{option} is about the node of this process: add --node");
    }
    let node_ranges = match arguments.node {
        true => Some(node::Ranges::choose(&arguments.node_options, arguments.ephemeral)?),
        false => None,
    };
    let default_range = node_ranges.as_ref().map_or(DEFAULT_SERVICE_RANGE, |ranges| &ranges.services);
    let service_range = arguments.service_cluster_ip_range.as_deref().unwrap_or(default_range);
    let ranges = ServiceRanges::parse(service_range, &arguments.service_node_port_range)?;
    // An ephemeral server's files are deleted with it.
    let private = || tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir();
    let temporary = arguments.ephemeral.then(private).transpose()?;
    let path = temporary.as_ref().map_or(arguments.data_dir.as_path(), |directory| directory.path());
    let data_dir = Arc::new(DataDir::open(path, arguments.ephemeral)?);
    let endpoint = match (&arguments.endpoint, arguments.ephemeral) {
        (Some(text), _) => Endpoint::parse(text)?,
        (None, true) => Endpoint::Memory,
        (None, false) => Endpoint::Sqlite(data_dir.join("orlop.db")),
    };
    let default_port = if arguments.ephemeral { 0 } else { 6443 };
    let listener =
        bind("--listen", arguments.listen.unwrap_or(([127, 0, 0, 1], default_port).into())).await?;
    let insecure_listener = match arguments.insecure_listen {
        Some(address) => Some(bind("--insecure-listen", address).await?),
        None => None,
    };
    let address = reachable(listener.local_addr()?);
    let insecure_address = insecure_listener.as_ref().map(TcpListener::local_addr).transpose()?;

    let hygiene = arguments.hygiene.hygiene()?;
    let flow_control = arguments.flow_control.options()?;
    let mut config = store_config(&endpoint, &arguments.durability);
    let encryption = arguments.encryption.load(&mut config).await?;
    let store = Store::open(config).await.with_context(|| format!("cannot open {endpoint}"))?;
    arguments.encryption.open(encryption.as_ref(), &store).await?;
    let advertised = arguments.advertise_address.unwrap_or_else(|| advertised(&listener));
    let serving_addresses =
        [listener.local_addr()?.ip(), [127, 0, 0, 1].into(), ranges.api_server(), advertised];
    let mut identity = Identity::load(&data_dir, &store, &serving_addresses, &arguments.identity).await?;
    let verifiers = arguments.authentication.verifiers(identity.ca())?;
    let tls = identity.tls(verifiers.all.clone())?;
    let trust: SharedTrust = Arc::new(ArcSwap::from_pointee(identity.trust()?));
    let kubeconfig = arguments.kubeconfig.clone().unwrap_or_else(|| data_dir.join("kubeconfig"));
    identity.write_kubeconfig(&data_dir, &kubeconfig, address)?;
    let screen = Screen {
        address,
        insecure_address,
        endpoint: endpoint.clone(),
        kubeconfig: kubeconfig.clone(),
        token_file: identity.has_admin_token().then(|| identity.token_file.clone()),
        key_file: identity.key_file.clone(),
        has_node: arguments.node,
    };

    let node_tls = identity.node_tls()?;
    let node_options = &arguments.node_options;
    let kubelet = match arguments.node {
        true => Some(identity.kubelet(node_options.name(), node_options.address())?),
        false => None,
    };
    let issuer = arguments.authentication.issuer(identity.issuer()?)?;
    let mut authentication = arguments.authentication.load(&identity, issuer.names(), &verifiers)?;
    let (tracker, uses) = UseTracker::channel();
    authentication.use_tracker = Some(tracker);
    if arguments.authorization.allows_everybody()? && !matches!(authentication.anonymous, Anonymous::Disabled)
    {
        ::tracing::warn!(
            "anonymous requests are refused: the authorizer AlwaysAllow would let them do everything"
        );
        authentication.anonymous = Anonymous::Disabled;
    }
    let (metrics_tls, metrics_verifier) = match &node_ranges {
        Some(ranges) if arguments.aggregation.uses_own_ca() => {
            let address = ranges.metrics_address();
            let MetricsTls { tls, verifier } = identity.metrics_tls(address)?;
            (Some((address, tls)), Some(verifier))
        }
        _ => (None, None),
    };
    let cluster = Cluster::new(store.clone(), Kinds::builtin(), issuer)
        .with_service_ranges(ranges)
        .with_version(arguments.reported_version.clone().unwrap_or_default())
        .with_node_tls(node_tls)
        .with_flow_control(flow_control)
        .with_audiences(arguments.authentication.audiences())
        .with_authentication_info(
            arguments.authentication.published(trust.clone(), arguments.aggregation.uses_own_ca()),
        );
    let cluster = Arc::new(arguments.admission.install(cluster)?);
    arguments.aggregation.install(&cluster, &identity)?;
    let issuer = cluster.issuer().clone();
    let auditor = arguments.audit.open()?;
    let tracer = arguments.tracing.start(&candidate_name())?;
    let chain = Chain::new(cluster.clone(), authentication)
        .with_auditor(auditor.clone())
        .with_hygiene(hygiene)
        .with_tracer(tracer);
    if let Some(encryption) = &encryption {
        encryption::add_check(&chain, encryption);
        let encryption = encryption.clone();
        chain.add_metrics(Box::new(move |registry| encryption.register_metrics(registry)));
    }
    let decisions = DecisionMetrics::default();
    let authorization_loop = arguments.authorization.install(&cluster, &decisions)?;
    chain.add_metrics(Box::new(move |registry| decisions.register(registry)));
    let weak_cluster = Arc::downgrade(&cluster);
    drop(cluster);
    chain.expect(bootstrap::STEPS);
    chain.expect(&[CONTROLLERS]);

    // Serving begins before the bootstrap is done, so that probes can ask how far it is.
    let (stop, stopped) = watch::channel(false);
    let serving = [Some((listener, Some(tls.clone()))), insecure_listener.map(|listener| (listener, None))];
    let serving: Vec<_> = serving
        .into_iter()
        .flatten()
        .map(|(listener, tls)| tokio::spawn(serve(listener, chain.clone(), tls, is_set(stopped.clone()))))
        .collect();
    let advertised = SocketAddr::new(advertised, address.port());
    bootstrap(&chain, advertised, &identity.root_ca).await?;
    let client = |user: User| orlop_client::Client::new(chain.service(user), "default");
    let own = client(User::master("system:apiserver"));
    // Nobody else can open a database in memory or in the locked data directory: no need to compete.
    let is_private = matches!(endpoint, Endpoint::Memory) || arguments.endpoint.is_none();
    let election = (!is_private).then(|| LeaderElection::new(candidate_name()));
    let uses_loop = tokio::spawn(service_account_tokens::record_uses(own.clone(), uses));
    let (root_ca, root_ca_changes) = watch::channel(identity.root_ca.clone());
    let options = orlop_controllers::Options {
        root_ca: root_ca_changes.into(),
        local_volumes: match arguments.node {
            true => Some(std::path::absolute(data_dir.join("volumes"))?),
            false => None,
        },
        node_ranges: arguments.node_ranges.ranges()?,
        signers: identity::signers(&trust, issuer),
    };
    let shared = client(controller_manager_user());
    let mut manager = orlop_controllers::manager(shared, &selected, &options).with_leader_election(election);
    if arguments.compose {
        compose::grant(&own, arguments.compose_rights).await?;
        let metrics = orlop_compose::Metrics::default();
        compose::register(&mut manager, orlop_compose::Settings::default(), metrics.clone());
        chain.add_metrics(Box::new(move |registry| metrics.register(registry)));
    }
    let manager = manager.with_clients(|name| match name {
        orlop_compose::NAME => client(compose::user()),
        _ => client(controller_user(name)),
    });
    let metrics = manager.metrics();
    chain.add_metrics(Box::new(move |registry| metrics.register(registry)));
    let (stop_controllers, controllers_stopped) = watch::channel(false);
    let controllers = background::spawn(manager.run(is_set(controllers_stopped)));
    let bootstrap_loop =
        tokio::spawn(bootstrap::reconcile(chain.clone(), advertised, identity.root_ca.clone()));
    let mut node = match kubelet.as_ref().zip(node_ranges) {
        Some((kubelet, ranges)) => {
            let tls = kubelet.tls.clone();
            let (folder, is_ephemeral) = (data_dir.join("node"), arguments.ephemeral);
            Some(node::InProcess::start(&chain, node_options, folder, is_ephemeral, ranges, tls).await?)
        }
        None => None,
    };
    let metrics = match metrics_tls {
        Some((address, tls)) => {
            Some(node::Metrics::start(&chain, address, tls, identity.ca().to_owned()).await?)
        }
        None => {
            let client = client(User::master("system:metrics-server"));
            tokio::spawn(async move { orlop_metrics::remove_stale_registration(&client).await });
            None
        }
    };
    identity.written().await?;
    let renewal = Renewal {
        authentication: arguments.authentication.clone(),
        uses_own_proxy_ca: arguments.aggregation.uses_own_ca(),
        identity,
        data_dir: data_dir.clone(),
        kubeconfig,
        address,
        cluster: weak_cluster,
        tls,
        verifiers,
        kubelet,
        metrics: metrics_verifier,
        trust,
        root_ca,
        pending: None,
    };
    let renewal_loop = tokio::spawn(renewal.run(store.clone()));
    chain.done(CONTROLLERS);

    if arguments.ephemeral {
        println!("{}", screen.to_json());
    } else {
        println!("{}", screen.to_text(started.elapsed()));
    }

    let failed_node = async {
        match &mut node {
            Some(node) => node.failed().await,
            None => std::future::pending().await,
        }
    };
    let failure = tokio::select! {
        () = shutdown => None,
        error = failed_node => Some(error),
    };
    chain.stopping();
    tokio::time::sleep(arguments.shutdown_delay_duration).await;
    // Before watches end: controllers would only open them again. They free their leases.
    bootstrap_loop.abort();
    authorization_loop.abort();
    uses_loop.abort();
    renewal_loop.abort();
    let _ = bootstrap_loop.await;
    stop_controllers.send_replace(true);
    let _ = controllers.await;
    if let Some(metrics) = metrics {
        metrics.stop().await;
    }
    if let Some(node) = node {
        node.stop().await;
    }
    stop.send_replace(true);
    for serving in serving {
        let _ = serving.await;
    }
    drop(chain);
    if let Some(auditor) = auditor {
        auditor.close().await;
    }
    // A request that outlived the drain still holds the store. What was acknowledged is durable either way.
    if tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await.is_err() {
        ::tracing::warn!("requests were still in flight when the server stopped");
    }
    failure.map_or(Ok(()), Err)
}

fn store_config(endpoint: &Endpoint, durability: &str) -> Config {
    let mut config = Config::new(endpoint.clone());
    // Watchers that fall behind read the log, and the page cache holds what SQLite's does not: see
    // docs/decisions/0013-memory-of-the-api-server.md.
    (config.ring_bytes, config.cache_bytes) = (2 << 20, 2 << 20);
    config.commit_on_caller = false;
    config.may_block = orlop_net::is_busy_thread;
    config.readers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 4);
    if durability == "relaxed" {
        config.durability = Durability::Relaxed;
    }
    config
}

async fn bind(option: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let hint = || format!("cannot listen on {address} ({option})");
    TcpListener::bind(address).await.with_context(hint)
}

/// Returns once the value is set or its sender is dropped.
async fn is_set(mut value: watch::Receiver<bool>) {
    let _ = value.wait_for(|is_set| *is_set).await;
}

/// Returns the address that a server is known by: the one listened on, or for all addresses that of the default route.
fn advertised(listener: &TcpListener) -> IpAddr {
    let listened = listener.local_addr().map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip());
    if !listened.is_unspecified() {
        return listened;
    }
    // Nothing is sent: the system chooses the address that it would send from.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    probe.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

/// Parses an address with a port.
fn address(text: &str) -> anyhow::Result<SocketAddr> {
    text.parse().context("write ADDR:PORT, as in 127.0.0.1:6443, or 0.0.0.0:6443 for all addresses")
}

/// Parses an address, which must be a loopback address.
fn loopback(text: &str) -> anyhow::Result<SocketAddr> {
    let address: SocketAddr = text.parse().context("write ADDR:PORT, as in 127.0.0.1:8080")?;
    if !address.ip().is_loopback() {
        bail!("without TLS only a loopback address is served, such as 127.0.0.1:{}", address.port());
    }
    Ok(address)
}

/// Returns an address that this machine can connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    address
}
