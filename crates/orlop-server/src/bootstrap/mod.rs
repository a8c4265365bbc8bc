//! Objects of every cluster: system namespaces, the kubernetes service, priority classes.

mod authentication_info;
mod flow_control;
mod objects;
mod policy;

use std::{net::SocketAddr, time::Duration};

use futures_util::future::{BoxFuture, try_join_all};
use http::Request;
use orlop_api::object_meta;
use serde_json::{Value, json};

use self::objects::Expected;
use crate::{
    aggregation_controllers,
    auth::{User, lookup},
    chain::Chain,
    cluster::Cluster,
    endpoints::health::ROUTES,
    object::now,
    registry::Found,
    storage::service_ranges::ServiceRanges,
};

/// System namespaces.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Steps of the start, by the names of Kubernetes' health checks.
pub const STEPS: &[&str] = &[
    ROUTES,
    SYSTEM_NAMESPACES,
    BOOTSTRAP_ROLES,
    "start-kubernetes-service-cidr-controller",
    "bootstrap-controller",
    AUTHENTICATION_INFO,
    "start-legacy-token-tracking-controller",
    "scheduling/bootstrap-system-priority-classes",
    FLOW_CONTROL_CONSUMER,
    FLOW_CONTROL_PRODUCER,
    aggregation_controllers::STEPS[0],
    aggregation_controllers::STEPS[1],
];
const AUTHENTICATION_INFO: &str = "start-cluster-authentication-info-controller";
const SYSTEM_NAMESPACES: &str = "start-system-namespaces-controller";
const BOOTSTRAP_ROLES: &str = "rbac/bootstrap-roles";
const FLOW_CONTROL_CONSUMER: &str = "priority-and-fairness-config-consumer";
const FLOW_CONTROL_PRODUCER: &str = "priority-and-fairness-config-producer";
/// ConfigMap with the date since which the use of legacy tokens is tracked: that of the first start.
const TOKEN_TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// Interval at which missing objects are created again.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(10);

/// The objects of a cluster could not be created.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The informer of definitions did not start.
    #[error("cannot serve CustomResourceDefinitions: {0}")]
    Definitions(String),
    /// The roles and bindings were not loaded, or the default ones not found.
    #[error("cannot set up roles and bindings: {0}")]
    Policy(String),
    /// A kind of these objects is not served.
    #[error("{0} is not served")]
    NotServed(String),
    /// The store could not be read.
    #[error("cannot read the objects of the cluster: {0}")]
    Read(String),
    /// An object could not be read or created.
    #[error("{path}: {message}")]
    Object {
        /// Path of the object.
        path: String,
        /// Message of the Status.
        message: String,
    },
    /// The configuration of flow control was not loaded.
    #[error("cannot set up flow control: {0}")]
    FlowControl(String),
    /// The APIServices were not loaded.
    #[error("cannot serve APIServices: {0}")]
    Aggregation(String),
    /// A request was refused.
    #[error("{path} answered {code}")]
    Response {
        /// Path of the request.
        path: String,
        /// Status code of the response.
        code: u16,
    },
    /// The kubernetes service exists with an address of another range.
    #[error(
        "the service default/kubernetes has an address of another range: the cluster IP range of an existing \
         cluster cannot change"
    )]
    ServiceRange,
    /// A request could not be built.
    #[error("cannot build a request")]
    Request(#[from] http::Error),
}

/// Address that nodes and pods reach the API server at: that of the `kubernetes` service's endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Advertised(SocketAddr);

impl From<u16> for Advertised {
    fn from(port: u16) -> Self {
        Self(SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

impl From<SocketAddr> for Advertised {
    fn from(address: SocketAddr) -> Self {
        Self(address)
    }
}

/// Creates missing objects through the chain, so that they are like all others. `address` is that of the API server, `ca`
/// what its clients trust.
pub fn bootstrap<'a>(
    chain: &'a Chain,
    address: impl Into<Advertised>,
    ca: &'a str,
) -> BoxFuture<'a, Result<(), BootstrapError>> {
    Box::pin(create_objects(chain, address.into(), ca))
}

async fn create_objects(chain: &Chain, address: Advertised, ca: &str) -> Result<(), BootstrapError> {
    follow_credentials(chain.cluster());
    crate::definition_controllers::start(chain.cluster())
        .await
        .map_err(|status| BootstrapError::Definitions(status.message))?;
    chain.cluster().policy.load().await.map_err(|status| BootstrapError::Policy(status.message))?;
    flow_control::load(chain).await?;
    chain.done(FLOW_CONTROL_CONSUMER);
    chain.done(ROUTES);
    ensure_namespaces(chain).await?;
    // Kept by whoever starts, and not again and again: a role that somebody removes stays away until then.
    let (policy, flow_control, objects, aggregation) = tokio::join!(
        policy::ensure(chain),
        flow_control::ensure(chain),
        ensure(chain, address, ca),
        aggregation_controllers::start(chain)
    );
    flow_control?;
    chain.done(FLOW_CONTROL_PRODUCER);
    policy?;
    chain.done(BOOTSTRAP_ROLES);
    aggregation.map_err(|status| BootstrapError::Aggregation(status.message))?;
    objects
}

/// Creates the objects again when they are deleted.
pub fn reconcile(chain: Chain, address: impl Into<Advertised>, ca: String) -> BoxFuture<'static, ()> {
    Box::pin(reconcile_forever(chain, address.into(), ca))
}

async fn reconcile_forever(chain: Chain, address: Advertised, ca: String) {
    loop {
        tokio::time::sleep(RECONCILE_INTERVAL).await;
        let ensured = async {
            ensure_namespaces(&chain).await?;
            flow_control::reconcile(&chain).await?;
            ensure(&chain, address, &ca).await
        };
        if let Err(error) = ensured.await {
            tracing::debug!(%error, "cannot reconcile system objects");
        }
    }
}

async fn ensure_namespaces(chain: &Chain) -> Result<(), BootstrapError> {
    let namespace =
        |name: &&str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    objects::create_missing(chain, &NAMESPACES.iter().map(namespace).collect::<Vec<_>>()).await?;
    chain.done(SYSTEM_NAMESPACES);
    Ok(())
}

async fn ensure(chain: &Chain, address: Advertised, ca: &str) -> Result<(), BootstrapError> {
    let objects = objects(address, chain.cluster().objects.service_ranges());
    let found = objects::find(chain, objects.iter().map(|(_, object)| object)).await?;
    // Concurrent writes share a group commit.
    let ensured =
        try_join_all(found.into_iter().map(|(expected, stored)| ensure_object(chain, expected, stored)));
    tokio::try_join!(ensured, authentication_info::ensure(chain, ca))?;
    chain.done(AUTHENTICATION_INFO);
    for (step, _) in objects {
        chain.done(step);
    }
    Ok(())
}

/// Returns objects with their step.
fn objects(Advertised(address): Advertised, ranges: &ServiceRanges) -> Vec<(&'static str, Value)> {
    let (ip, port) = (address.ip().to_string(), address.port());
    let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
    let today: String = now().to_string().chars().take("2026-01-01".len()).collect();
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let priority_class = |name: &str, value: i64, description: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": description,
        })
    };
    vec![
        (
            "start-kubernetes-service-cidr-controller",
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": ranges.cluster_ips().map(|range| range.to_string()).collect::<Vec<_>>()}}),
        ),
        (
            "bootstrap-controller",
            json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
                "spec": {"type": "ClusterIP", "clusterIP": ranges.api_server().to_string(), "sessionAffinity": "None",
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]}}),
        ),
        (
            "bootstrap-controller",
            json!({"apiVersion": "v1", "kind": "Endpoints",
                "metadata": {"name": "kubernetes", "namespace": "default",
                    "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
                "subsets": [{"addresses": [{"ip": ip}],
                    "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]}),
        ),
        (
            "bootstrap-controller",
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                "metadata": {"name": "kubernetes", "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "kubernetes"}},
                "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}),
        ),
        (
            // kube-controller-manager reads it before it removes legacy tokens.
            "start-legacy-token-tracking-controller",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": TOKEN_TRACKING, "namespace": "kube-system"},
                "data": {"since": today}}),
        ),
        (
            "scheduling/bootstrap-system-priority-classes",
            priority_class(
                "system-node-critical",
                2_000_001_000,
                "Pods that must not be moved from their node.",
            ),
        ),
        (
            "scheduling/bootstrap-system-priority-classes",
            priority_class(
                "system-cluster-critical",
                2_000_000_000,
                "Pods that the cluster cannot do without.",
            ),
        ),
    ]
}

/// Follows the objects that credentials depend on, until the cluster is closed.
fn follow_credentials(cluster: &Cluster) {
    let closing = cluster.closing();
    let following = lookup::follow(cluster.objects.clone(), cluster.credential_changes().clone());
    tokio::spawn(async move {
        tokio::select! {
            () = following => {}
            () = closing => {}
        }
    });
}

/// Creates an object unless it exists. Objects with the server's address or CA are updated: they may have changed.
async fn ensure_object(
    chain: &Chain,
    expected: Expected<'_>,
    stored: Option<Found>,
) -> Result<(), BootstrapError> {
    let stored = match stored {
        Some(stored) => Some(stored),
        None => match expected.create(chain).await {
            Ok(true) => return Ok(()),
            Ok(false) => expected.find(chain).await?,
            // Another server may have created it meanwhile, and its address is allocated.
            Err(error) => Some(expected.find(chain).await?.ok_or(error)?),
        },
    };
    let meta = object_meta::of(expected.object);
    let is_own = !object_meta::text(meta, "namespace").is_empty();
    if !is_own || object_meta::text(meta, "name") == TOKEN_TRACKING {
        return Ok(());
    }
    let mut change = expected.object.clone();
    if let Some(change) = change.as_object_mut() {
        change.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata"));
    }
    if let Some(stored) = &stored
        && is_part_of(&change, &expected.read(stored).await?)
    {
        return Ok(());
    }
    let path = expected.path();
    match send(chain, "PATCH", &path, "application/merge-patch+json", change.to_string()).await? {
        200 => Ok(()),
        422 if path.ends_with("/services/kubernetes") => Err(BootstrapError::ServiceRange),
        code if code >= 500 => {
            tracing::warn!(path, code, "cannot update; it will be retried");
            Ok(())
        }
        code => Err(BootstrapError::Response { path, code }),
    }
}

/// Returns true if a merge patch would not change an object.
fn is_part_of(change: &Value, object: &Value) -> bool {
    match (change, object) {
        (Value::Object(change), Value::Object(object)) => change
            .iter()
            .all(|(field, value)| object.get(field).is_some_and(|object| is_part_of(value, object))),
        (Value::Array(change), Value::Array(object)) => {
            let same = change.len() == object.len();
            same && change.iter().zip(object).all(|(change, object)| is_part_of(change, object))
        }
        (change, object) => change == object,
    }
}

async fn send(
    chain: &Chain,
    method: &str,
    path: &str,
    media_type: &str,
    body: String,
) -> Result<u16, BootstrapError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, media_type)
        .header(http::header::USER_AGENT, "orlop")
        .body(http_body_util::Full::new(bytes::Bytes::from(body)))?;
    Ok(chain.answer(request, Some(&User::master("system:apiserver"))).await.status().as_u16())
}
