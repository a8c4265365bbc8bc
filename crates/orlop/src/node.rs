//! `orlop node`: a node that runs pods as processes, by kubeconfig; and the same in the process of a server.

mod join;

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use orlop_client::{Client, Config, ConfigError};
use orlop_net::{ClientVerifier, PemSource, ServerTls};
use orlop_node::{Claim, Images, Isolation, POD_RANGE, PodRange, Settings};
use orlop_server::{User, auth::pki, chain::Chain};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use self::join::OwnKubeconfig;
use crate::shutdown;

/// Range of cluster IPs in a cluster whose nodes have loopback addresses.
const SERVICE_RANGE: &str = "127.128.0.0/16";

/// Port of DNS, the only one that a resolv.conf can mean.
const DNS_PORT: u16 = 53;

const EXAMPLES: &str = "\
Examples:
  orlop node --kubeconfig orlop-data/kubeconfig --image web=./target/debug/web
      A node of the cluster in the kubeconfig. Pods with the image \"web\" run that program.
  orlop node --bootstrap-kubeconfig token.kubeconfig --node-name second --node-listen 127.0.0.1:10251 \\
      --pod-range 127.65.0.0/16
      Asks for credentials of its own, and keeps them in its data directory.
  orlop node --images ./images --node-name third --pod-range 127.66.0.0/16 --node-listen 127.0.0.1:10252
      Another node on the same machine, with images from a folder: images/NAME/image.yaml.";

/// Options of a node.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Program of an image, as NAME=PATH. May be repeated. NAME= is an image without a program: its containers
    /// name their command.
    #[arg(long = "image", value_name = "NAME=PATH", value_parser = image, help_heading = "Node")]
    images: Vec<(String, PathBuf)>,

    /// Folder of images: NAME/image.yaml has entrypoint, cmd, env, workdir, user (UID or UID:GID) and root,
    /// a folder of files.
    #[arg(long = "images", value_name = "DIR", help_heading = "Node")]
    image_folder: Option<PathBuf>,

    /// Name of the node [default: the host name].
    #[arg(long, value_name = "NAME", help_heading = "Node")]
    node_name: Option<String>,

    /// Address and port of the node's own API [default: 127.0.0.1 and a free port].
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Node")]
    node_listen: Option<SocketAddr>,

    /// Labels of the node, as KEY=VALUE.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = label, help_heading = "Node")]
    node_labels: Vec<(String, String)>,

    /// Addresses of pods: a range within 127.64.0.0/10 [default: 127.64.0.0/16; with --ephemeral one that no other
    /// process has].
    #[arg(long, value_name = "CIDR", help_heading = "Node")]
    pod_range: Option<PodRange>,

    /// Network of pods: "machine" (that of the machine, which all pods share: a program should listen on $POD_IP), or
    /// "own" (a network namespace each, for programs that listen on all addresses; pods reach each other, services and, at
    /// the first address of the range, the machine, but nothing else; needs root and iproute2).
    #[arg(long, default_value = "machine", value_parser = ["machine", "own"], help_heading = "Node")]
    pod_network: String,

    /// Pods that run at a time.
    #[arg(long, default_value_t = 110, value_name = "COUNT", help_heading = "Node")]
    max_pods: u32,

    /// Isolation of containers: "namespaces" (mount, pid and host name), "none" (ordinary processes), or "auto"
    /// for namespaces where the machine allows them.
    #[arg(long, default_value = "auto", value_parser = ["auto", "namespaces", "none"], help_heading = "Node")]
    isolation: String,

    /// Leave services to another proxy.
    #[arg(long, help_heading = "Node")]
    no_service_proxy: bool,

    /// Answer DNS for services ("web.default.svc.cluster.local") on this loopback address, and others by the machine's
    /// own servers. Pods ask it if the port is 53, the default.
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = dns_address, help_heading = "Node")]
    cluster_dns: Option<SocketAddr>,

    /// Folder with manifests of static pods.
    #[arg(long, value_name = "DIR", help_heading = "Node")]
    pod_manifest_path: Option<PathBuf>,

    /// Longest time for containers to end when the node stops.
    #[arg(long, default_value = "30s", value_parser = orlop_duration::parse_unsigned, value_name = "TIME", help_heading = "Node")]
    shutdown_grace_period: Duration,
}

/// Runs a node of the cluster in a kubeconfig. Pods that are bound to it run as processes of this machine.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Kubeconfig of the cluster [default: $KUBECONFIG, ~/.kube/config, or that of the pod it runs in].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// Kubeconfig to ask for this node's own credentials with, such as one with a bootstrap token. They are kept in
    /// the data directory.
    #[arg(long, value_name = "PATH", conflicts_with = "kubeconfig")]
    bootstrap_kubeconfig: Option<PathBuf>,

    /// Ask the cluster for the serving certificate of the node's own API (signer kubernetes.io/kubelet-serving).
    /// Somebody has to approve it: kubectl certificate approve.
    #[arg(long)]
    rotate_server_certificates: bool,

    /// Directory of pods, volumes and logs.
    #[arg(long, default_value = "orlop-node", value_name = "DIR")]
    data_dir: PathBuf,

    /// Address of this node in the Node object [default: the one of --node-listen].
    #[arg(long, value_name = "ADDR")]
    node_ip: Option<IpAddr>,

    #[command(flatten)]
    options: Options,
}

impl Options {
    /// Returns the name of the node.
    pub(crate) fn name(&self) -> String {
        let host =
            || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_lowercase();
        let name = self.node_name.clone().unwrap_or_else(host);
        if name.is_empty() { "localhost".to_owned() } else { name }
    }

    fn listen(&self, default_port: u16) -> SocketAddr {
        self.node_listen.unwrap_or(([127, 0, 0, 1], default_port).into())
    }

    /// Returns the address of the node.
    pub(crate) fn address(&self) -> IpAddr {
        let listened = self.listen(0).ip();
        if listened.is_unspecified() { [127, 0, 0, 1].into() } else { listened }
    }

    fn settings(&self, data_dir: PathBuf, tls: ServerTls) -> anyhow::Result<Settings> {
        Ok(Settings {
            name: self.name(),
            data_dir: std::path::absolute(&data_dir).with_context(|| data_dir.display().to_string())?,
            program: std::env::current_exe().context("cannot find this program")?,
            address: self.address(),
            pod_range: self.pod_range.unwrap_or(POD_RANGE),
            own_networks: self.pod_network == "own",
            pods_max: self.max_pods,
            images: Images { programs: self.programs()?, folder: self.folder()? },
            isolation: match self.isolation.as_str() {
                "namespaces" => Isolation::Namespaces,
                "none" => Isolation::None,
                _ => Isolation::Auto,
            },
            static_pods: self.pod_manifest_path.clone(),
            labels: self.node_labels.iter().cloned().collect(),
            service_proxy: !self.no_service_proxy,
            cluster_domain: "cluster.local".to_owned(),
            dns: self.cluster_dns,
            cluster_dns: self.cluster_dns.filter(|dns| dns.port() == DNS_PORT).map(|dns| dns.ip()),
            is_ephemeral: false,
            shutdown_grace: self.shutdown_grace_period,
            tls,
        })
    }

    fn folder(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(folder) = &self.image_folder else { return Ok(None) };
        let found = fs::read_dir(folder).with_context(|| format!("--images {}", folder.display()));
        found.and_then(|_| Ok(Some(std::path::absolute(folder)?)))
    }

    /// Returns an option of a node that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (!self.images.is_empty(), "--image"),
            (self.image_folder.is_some(), "--images"),
            (self.node_name.is_some(), "--node-name"),
            (self.node_listen.is_some(), "--node-listen"),
            (!self.node_labels.is_empty(), "--node-labels"),
            (self.pod_range.is_some(), "--pod-range"),
            (self.pod_network == "own", "--pod-network"),
            (self.cluster_dns.is_some(), "--cluster-dns"),
            (self.pod_manifest_path.is_some(), "--pod-manifest-path"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    fn programs(&self) -> anyhow::Result<BTreeMap<String, PathBuf>> {
        let mut programs = BTreeMap::new();
        for (name, path) in &self.images {
            let absolute = match path.as_os_str().is_empty() {
                true => PathBuf::new(),
                false => path.canonicalize().with_context(|| format!("--image {name}={}", path.display()))?,
            };
            programs.insert(name.clone(), absolute);
        }
        Ok(programs)
    }
}

/// Runs a node until it is told to stop.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    const KUBELET_PORT: u16 = 10250;
    let shutdown = shutdown::requested();
    let options = &arguments.options;
    let source = match (&arguments.kubeconfig, &arguments.bootstrap_kubeconfig) {
        (Some(path), _) => Source::Kubeconfig(path.clone()),
        (None, Some(bootstrap)) => {
            let own = OwnKubeconfig::new(&arguments.data_dir, &options.name());
            own.ensure(bootstrap).await?;
            Source::Own(own)
        }
        (None, None) => Source::Inferred,
    };
    let config = source.read().context("the node has no cluster: name one with --kubeconfig FILE")?;
    // The CA of the cluster signs the client certificate of its API server.
    let (trusted, trusted_changes) = watch::channel(config.root_ca().unwrap_or_default());
    let (client, connection) = Client::connect_replaceable(config).await?;
    let address = arguments.node_ip.unwrap_or_else(|| options.address());
    // Its own, as a kubelet's: the API server does not verify it unless it is told to.
    let authority = pki::Authority::generate()?;
    let (certificate, key) = authority.server(&[options.name()], &[address])?.to_sources();
    let client_ca = |cas: &str| match cas {
        "" => PemSource::Inline(authority.certificate().to_owned()),
        cas => PemSource::Inline(cas.to_owned()),
    };
    let verifier = ClientVerifier::new(vec![client_ca(&trusted.borrow())]).map_err(pki::Error::from)?;
    let verifier = Arc::new(verifier);
    let tls = pki::server_tls_with(certificate, key, vec![verifier.clone()]).map_err(pki::Error::from)?;
    let mut settings = options.settings(arguments.data_dir.clone(), tls.clone())?;
    settings.address = address;
    let mut tasks = Vec::new();
    if arguments.rotate_server_certificates {
        let (client, node) = (client.clone(), settings.name.clone());
        let renewal = join::renew_serving_certificate(client, node, address, tls, trusted_changes);
        tasks.push(tokio::spawn(renewal));
    }
    if let Source::Own(own) = &source {
        let (own, client) = (own.clone(), client.clone());
        tasks.push(tokio::spawn(async move { own.renew(client).await }));
    }
    let listen = options.listen(KUBELET_PORT);
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let _claim = claim(settings.pod_range);
    println!("orlop node {} runs pods of {}", settings.name, settings.pod_range);
    let node = orlop_node::run(client.clone(), client, settings, listener, shutdown);
    let following = connection.follow(
        || source.read(),
        |config| {
            let current = config.root_ca().unwrap_or_default();
            let is_new =
                trusted.send_if_modified(|known| std::mem::replace(known, current.clone()) != current);
            if !is_new {
                return;
            }
            match verifier.replace(vec![client_ca(&current)]) {
                Ok(()) => tracing::info!("took over the CAs of the cluster's kubeconfig"),
                Err(error) => tracing::warn!(%error, "cannot use the CAs of the cluster's kubeconfig"),
            }
        },
    );
    let ended = tokio::select! {
        ended = node => ended,
        () = following => Ok(()),
    };
    tasks.iter().for_each(JoinHandle::abort);
    Ok(ended?)
}

/// Source of a node's credentials. All are followed while it runs.
#[derive(Debug)]
enum Source {
    /// The kubeconfig that kubectl would use, or the service account of the pod it runs in.
    Inferred,
    /// A kubeconfig that somebody else writes.
    Kubeconfig(PathBuf),
    /// One that the node writes itself.
    Own(OwnKubeconfig),
}

impl Source {
    fn read(&self) -> Result<Config, ConfigError> {
        match self {
            Self::Inferred => Config::infer(),
            Self::Kubeconfig(path) => Config::read_from(path),
            Self::Own(own) => own.read(),
        }
    }
}

/// A node in the process of a server.
#[derive(Debug)]
pub(crate) struct InProcess {
    stop: watch::Sender<bool>,
    /// `None` once its end was told.
    task: Option<JoinHandle<Result<(), orlop_node::Error>>>,
    _ranges: Ranges,
}

/// Ranges of loopback addresses of a cluster in one process.
#[derive(Debug)]
pub(crate) struct Ranges {
    pods: PodRange,
    /// Cluster IPs of services.
    pub(crate) services: String,
    /// Keeps other processes from the same ranges for as long as this one runs.
    _claim: Option<Claim>,
}

impl Ranges {
    /// Returns the default ranges, or for a server of a test ranges that no other process on the machine has.
    pub(crate) fn choose(options: &Options, is_ephemeral: bool) -> anyhow::Result<Self> {
        const SIZE: u32 = 1 << 12;
        const COUNT: u32 = 1 << 10;
        if !is_ephemeral || options.pod_range.is_some() {
            let pods = options.pod_range.unwrap_or(POD_RANGE);
            return Ok(Self { pods, services: SERVICE_RANGE.to_owned(), _claim: claim(pods) });
        }
        let start = std::process::id() % COUNT;
        for offset in 0..COUNT {
            let index = (start + offset) % COUNT;
            let range =
                |first: [u8; 4]| format!("{}/20", Ipv4Addr::from(u32::from_be_bytes(first) + index * SIZE));
            let pods: PodRange = range([127, 64, 0, 0]).parse()?;
            if let Ok(claim) = Claim::range(pods) {
                return Ok(Self { pods, services: range([127, 128, 0, 0]), _claim: Some(claim) });
            }
        }
        bail!("other processes have all ranges of loopback addresses: pass --pod-range")
    }
}

/// Claims the addresses of pods, and warns where another node of this machine has some of them.
fn claim(range: PodRange) -> Option<Claim> {
    let error = match Claim::range(range) {
        Ok(claim) => return Some(claim),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::AddrInUse {
        tracing::warn!(
            "another node of this machine gives addresses of {range} to its pods: they may take each other's ports. Pass \
             another --pod-range, such as 127.65.0.0/16; a cluster of its own needs another --service-cluster-ip-range too, \
             such as 127.129.0.0/16"
        );
    }
    None
}

/// The resource metrics API in the process of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    stop: watch::Sender<bool>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Metrics {
    /// Starts to serve it at an address. `ca` is the CA of the certificate that it serves with.
    pub(crate) async fn start(
        chain: &Chain,
        address: Ipv4Addr,
        tls: ServerTls,
        ca: String,
    ) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((address, 0)).await.with_context(|| format!("cannot listen on {address}"))?;
        let client = Client::new(chain.service(User::master("system:metrics-server")), "default");
        let (stop, mut stopped) = watch::channel(false);
        let shutdown = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        let task = tokio::spawn(orlop_metrics::run(client, listener, tls, ca, shutdown));
        Ok(Self { stop, task })
    }

    /// Stops it, and takes its registration back.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        if let Ok(Err(error)) = self.task.await {
            tracing::error!(%error, "the resource metrics API failed");
        }
    }
}

impl Ranges {
    /// Returns the address of the resource metrics API.
    pub(crate) fn metrics_address(&self) -> Ipv4Addr {
        self.pods.first()
    }
}

impl InProcess {
    /// Starts a node that speaks to the chain directly.
    pub(crate) async fn start(
        chain: &Chain,
        options: &Options,
        data_dir: PathBuf,
        is_ephemeral: bool,
        ranges: Ranges,
        tls: ServerTls,
    ) -> anyhow::Result<Self> {
        let mut settings = options.settings(data_dir, tls)?;
        (settings.is_ephemeral, settings.pod_range) = (is_ephemeral, ranges.pods);
        let listen = options.listen(0);
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let user = User::authenticated(format!("system:node:{}", settings.name), ["system:nodes".to_owned()]);
        let client = Client::new(chain.service(user), "default");
        let proxy_client =
            Client::new(chain.service(User::authenticated("system:kube-proxy", [])), "default");
        let (stop, mut stopped) = watch::channel(false);
        let shutdown = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        let node = orlop_node::run(client, proxy_client, settings, listener, shutdown);
        let task = Some(crate::background::spawn(node));
        Ok(Self { stop, task, _ranges: ranges })
    }

    /// Waits until the node fails.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let ended = task.await;
        self.task = None;
        match ended {
            Ok(Err(error)) => error.into(),
            Err(error) => error.into(),
            Ok(Ok(())) => anyhow::anyhow!("the node ended"),
        }
    }

    /// Stops the node and its pods.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        let Some(task) = self.task else { return };
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the node failed"),
            Err(error) => tracing::error!(%error, "the node failed"),
        }
    }
}

fn image(text: &str) -> anyhow::Result<(String, PathBuf)> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() => Ok((name.to_owned(), PathBuf::from(path))),
        _ => bail!("write NAME=PATH, as in web=./target/debug/web"),
    }
}

fn dns_address(text: &str) -> anyhow::Result<SocketAddr> {
    let address = text.parse::<SocketAddr>().or_else(|_| {
        let address: Ipv4Addr = text.parse()?;
        Ok::<_, std::net::AddrParseError>(SocketAddr::new(address.into(), DNS_PORT))
    });
    let address = address.context("write an address, as in 127.128.0.10")?;
    if !address.ip().is_loopback() {
        bail!("{address} is not a loopback address");
    }
    Ok(address)
}

fn label(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text.split_once('=').context("write KEY=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
