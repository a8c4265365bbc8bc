//! Kubernetes' controllers and scheduler, and the runtime they share.
//!
//! They only speak the API, through a [`orlop_client::Client`]: in process over the server's own service, or against
//! any cluster by kubeconfig. Each can be left out, so that a kube-controller-manager does its work instead.
//!
//! Every controller is a module with a `NAME` and one function that registers it; `CONTROLLERS` lists them. The
//! algorithms are pure functions from cached objects to decisions, with the calls of the API around them.

mod admission_policy_status;
mod backoff;
mod bootstrap_tokens;
pub mod certificate_approval;
mod certificate_cleaner;
mod certificate_requests;
pub mod certificate_signing;
mod cluster_role_aggregation;
mod cron_jobs;
mod daemon_sets;
mod deployments;
mod discovery;
mod disruption;
mod endpoint_slices;
mod endpoints;
mod garbage_collector;
mod horizontal_pod_autoscaling;
mod jobs;
mod legacy_token_cleaner;
mod namespace_content;
mod namespaces;
mod node_ipam;
mod node_lifecycle;
mod node_ttl;
mod pod_garbage_collector;
mod replica_sets;
mod resource_quotas;
mod root_ca;
mod root_ca_publisher;
pub mod runtime;
mod scheduler;
pub mod service_account_tokens;
mod service_accounts;
mod stateful_sets;
mod status;
mod trust_bundle_publisher;
mod ttl_after_finished;
mod volumes;
mod workload;

pub use node_ipam::{BadRange, NodeRanges, Range};
use orlop_client::Client;
pub use root_ca::RootCa;
use runtime::Manager;
pub use runtime::UnknownController;

/// Settings that some controllers need.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// PEM of the certificates that clients of the cluster trust.
    pub root_ca: RootCa,
    /// Folder of nodes for volumes that are made on demand. Without it there is no such class.
    pub local_volumes: Option<std::path::PathBuf>,
    /// Ranges of pods' addresses that nodes get a part of. Without them they get none.
    pub node_ranges: Option<NodeRanges>,
    /// Signers of credentials. Without one its controller does not run.
    pub signers: Signers,
}

/// Signers of credentials, which need keys that only the server has.
#[derive(Clone, Default)]
pub struct Signers {
    /// Signs tokens of service accounts.
    pub token: Option<service_account_tokens::SignToken>,
    /// Signs certificates.
    pub certificate: Option<certificate_signing::SignCertificate>,
    /// Recognizes requests of kubelets, which are approved if they may be.
    pub recognize_kubelet: Option<certificate_approval::RecognizeKubelet>,
}

impl std::fmt::Debug for Signers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signers").finish_non_exhaustive()
    }
}

/// A controller: its name, as kube-controller-manager has it, and the function that registers it.
struct Registration {
    name: &'static str,
    set: Set,
    register: fn(&mut Manager, &Options),
}

/// Sets of controllers, by when they run by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// No API server can do without: garbage collection, namespaces.
    Base,
    /// They act on workloads, and are for clusters that have nodes.
    Workloads,
}

const CONTROLLERS: &[Registration] = &[
    base(garbage_collector::NAME, |manager, _| {
        manager.register(garbage_collector::NAME, garbage_collector::run);
    }),
    base(namespaces::NAME, |manager, _| manager.register(namespaces::NAME, namespaces::run)),
    base(service_accounts::NAME, |manager, _| {
        manager.register(service_accounts::NAME, service_accounts::run);
    }),
    base(cluster_role_aggregation::NAME, |manager, _| {
        manager.register(cluster_role_aggregation::NAME, cluster_role_aggregation::run);
    }),
    base(admission_policy_status::NAME, |manager, _| {
        manager.register(admission_policy_status::NAME, admission_policy_status::run);
    }),
    base(root_ca_publisher::NAME, |manager, options| {
        let root_ca = options.root_ca.clone();
        manager.register(root_ca_publisher::NAME, move |context| {
            root_ca_publisher::run(context, root_ca.clone())
        });
    }),
    base(trust_bundle_publisher::NAME, |manager, options| {
        let root_ca = options.root_ca.clone();
        manager.register(trust_bundle_publisher::NAME, move |context| {
            trust_bundle_publisher::run(context, root_ca.clone())
        });
    }),
    base(service_account_tokens::NAME, |manager, options| {
        if let Some(sign) = &options.signers.token {
            service_account_tokens::register(manager, options.root_ca.clone(), sign.clone());
        }
    }),
    base(legacy_token_cleaner::NAME, |manager, _| legacy_token_cleaner::register(manager)),
    base(certificate_signing::NAME, |manager, options| {
        if let Some(sign) = &options.signers.certificate {
            certificate_signing::register(manager, sign.clone());
        }
    }),
    base(certificate_approval::NAME, |manager, options| {
        if let Some(recognize) = &options.signers.recognize_kubelet {
            certificate_approval::register(manager, recognize.clone());
        }
    }),
    base(certificate_cleaner::NAME, |manager, _| {
        certificate_cleaner::register(manager, certificate_cleaner::NAME);
    }),
    base(certificate_cleaner::PODS, |manager, _| {
        certificate_cleaner::register(manager, certificate_cleaner::PODS);
    }),
    base(bootstrap_tokens::SIGNER, |manager, _| {
        bootstrap_tokens::register(manager, bootstrap_tokens::SIGNER);
    }),
    base(bootstrap_tokens::CLEANER, |manager, _| {
        bootstrap_tokens::register(manager, bootstrap_tokens::CLEANER);
    }),
    base(resource_quotas::NAME, |manager, _| resource_quotas::register(manager)),
    workloads(replica_sets::NAME, |manager, _| replica_sets::register(manager, replica_sets::NAME)),
    workloads(replica_sets::REPLICATION_CONTROLLERS, |manager, _| {
        replica_sets::register(manager, replica_sets::REPLICATION_CONTROLLERS);
    }),
    workloads(deployments::NAME, |manager, _| deployments::register(manager)),
    workloads(stateful_sets::NAME, |manager, _| stateful_sets::register(manager)),
    workloads(daemon_sets::NAME, |manager, _| daemon_sets::register(manager)),
    workloads(jobs::NAME, |manager, _| jobs::register(manager)),
    workloads(cron_jobs::NAME, |manager, _| cron_jobs::register(manager)),
    workloads(ttl_after_finished::NAME, |manager, _| ttl_after_finished::register(manager)),
    workloads(pod_garbage_collector::NAME, |manager, _| pod_garbage_collector::register(manager)),
    workloads(horizontal_pod_autoscaling::NAME, |manager, _| horizontal_pod_autoscaling::register(manager)),
    workloads(disruption::NAME, |manager, _| disruption::register(manager)),
    workloads(node_ttl::NAME, |manager, _| node_ttl::register(manager)),
    workloads(node_ipam::NAME, |manager, options| {
        if let Some(ranges) = &options.node_ranges {
            node_ipam::register(manager, ranges.clone());
        }
    }),
    workloads(node_lifecycle::NAME, |manager, _| node_lifecycle::register(manager)),
    workloads(node_lifecycle::TAINT_EVICTION, |manager, _| node_lifecycle::register_taint_eviction(manager)),
    workloads(volumes::binder::NAME, |manager, _| volumes::binder::register(manager)),
    workloads(volumes::ephemeral::NAME, |manager, _| volumes::ephemeral::register(manager)),
    workloads(volumes::protection::CLAIMS, |manager, _| {
        volumes::protection::register(manager, volumes::protection::CLAIMS);
    }),
    workloads(volumes::protection::VOLUMES, |manager, _| {
        volumes::protection::register(manager, volumes::protection::VOLUMES);
    }),
    workloads(volumes::protection::CLASSES, |manager, _| {
        volumes::protection::register(manager, volumes::protection::CLASSES);
    }),
    workloads(volumes::attach_detach::NAME, |manager, _| volumes::attach_detach::register(manager)),
    workloads(volumes::local_path::NAME, |manager, options| {
        if let Some(folder) = &options.local_volumes {
            volumes::local_path::register(manager, folder.clone());
        }
    }),
    workloads(endpoints::NAME, |manager, _| endpoints::register(manager)),
    workloads(endpoint_slices::NAME, |manager, _| endpoint_slices::register(manager)),
    workloads(endpoint_slices::MIRRORING, |manager, _| endpoint_slices::register_mirroring(manager)),
    workloads(scheduler::NAME, |manager, _| scheduler::register(manager)),
];

const fn base(name: &'static str, register: fn(&mut Manager, &Options)) -> Registration {
    Registration { name, set: Set::Base, register }
}

const fn workloads(name: &'static str, register: fn(&mut Manager, &Options)) -> Registration {
    Registration { name, set: Set::Workloads, register }
}

/// Controllers that run when `--controllers` does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defaults {
    /// Those of an API server alone. Workloads are stored, and nobody acts on them.
    ApiServer,
    /// All, for a cluster that has nodes.
    Cluster,
}

/// Returns the names of all controllers.
pub fn names() -> Vec<&'static str> {
    CONTROLLERS.iter().map(|controller| controller.name).collect()
}

/// Selects controllers by the value of `--controllers`: `*` for all, `name` for one, `-name` for all of the defaults
/// but one.
pub fn select(choices: &[String], defaults: Defaults) -> Result<Vec<&'static str>, UnknownController> {
    let on_by_default = CONTROLLERS
        .iter()
        .filter(|controller| defaults == Defaults::Cluster || controller.set == Set::Base)
        .map(|controller| controller.name);
    runtime::select(&names(), &on_by_default.collect::<Vec<_>>(), choices)
}

/// Returns a manager of the selected controllers.
pub fn manager(client: Client, selected: &[&'static str], options: &Options) -> Manager {
    let mut manager = Manager::new(client);
    for controller in CONTROLLERS.iter().filter(|controller| selected.contains(&controller.name)) {
        (controller.register)(&mut manager, options);
    }
    manager
}

/// Runs the selected controllers without leader election, for ever.
pub async fn run(client: Client, selected: &[&'static str], options: Options) {
    manager(client, selected, &options).run(std::future::pending()).await;
}
