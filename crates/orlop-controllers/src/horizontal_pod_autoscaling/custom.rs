//! Metrics beyond cpu and memory: of pods and other objects (`custom.metrics.k8s.io`), and of anything else
//! (`external.metrics.k8s.io`), as adapters serve them through the aggregator.

use k8s_openapi::{
    api::{
        autoscaling::v2::{
            CrossVersionObjectReference, ExternalMetricStatus, MetricIdentifier, MetricSpec, MetricStatus,
            MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus,
        },
        core::v1::Pod,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector},
};
use orlop_client::{Api, Client, ResourceExt, api::ListParams};
use serde_json::Value;

use super::{
    decision::{Target, Tolerance, Usage},
    groups::Group,
};
use crate::{
    discovery::Resources,
    runtime::Key,
    status::{is_not_found, message},
    workload::{pods, resources::amount},
};

/// Versions of the API of custom metrics, newest first.
const CUSTOM_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Reason and text of a metric that could not be had.
pub(super) type Failure = (&'static str, String);

/// A target's current replicas, its pods and the tolerance.
#[derive(Clone, Copy)]
pub(super) struct Replicas<'a> {
    pub(super) current: i32,
    pub(super) selector: &'a str,
    pub(super) tolerance: Tolerance,
}

/// Measures a metric of one of these APIs. `None` if it is of another type.
pub(super) async fn measure(
    client: &Client,
    key: &Key,
    metric: &MetricSpec,
    replicas: Replicas<'_>,
) -> Option<Result<(i32, MetricStatus), Failure>> {
    let measured = match metric.type_.as_str() {
        "Pods" => {
            let source = metric.pods.as_ref()?;
            let measured = of_pods(client, key, &source.metric, &source.target, replicas).await;
            measured.map_err(|text| {
                ("FailedGetPodsMetric", format!("unable to get metric {}: {text}", source.metric.name))
            })
        }
        "Object" => {
            let source = metric.object.as_ref()?;
            let object = &source.described_object;
            let measured = of_object(client, key, &source.metric, object, &source.target, replicas).await;
            measured.map_err(|text| {
                let text = format!(
                    "unable to get metric {}: {} on {} {text}",
                    source.metric.name, object.kind, key.namespace
                );
                ("FailedGetObjectMetric", text)
            })
        }
        "External" => {
            let source = metric.external.as_ref()?;
            let measured = external(client, key, &source.metric, &source.target, replicas).await;
            measured.map_err(|text| {
                let text =
                    format!("unable to get external metric {}/{}: {text}", key.namespace, source.metric.name);
                ("FailedGetExternalMetric", text)
            })
        }
        _ => return None,
    };
    Some(measured.map(|(wanted, mut status)| {
        status.type_.clone_from(&metric.type_);
        (wanted, status)
    }))
}

async fn of_pods(
    client: &Client,
    key: &Key,
    metric: &MetricIdentifier,
    target: &MetricTarget,
    replicas: Replicas<'_>,
) -> Result<(i32, MetricStatus), String> {
    let goal = milli(target.average_value.as_ref()).ok_or("the metric has no target")?;
    let path = format!("namespaces/{}/pods/*/{}", key.namespace, metric.name);
    let query =
        query(&[("labelSelector", replicas.selector.to_owned()), ("metricLabelSelector", selector(metric)?)]);
    let items = custom(client, &path, &query).await?;
    let pods = pods_of(client, key, replicas.selector).await?;
    let mut usage = Usage::default();
    for pod in pods.iter().filter(|pod| pods::is_active(pod)) {
        let name = pod.name_any();
        let value =
            items.iter().find(|item| item["describedObject"]["name"] == name.as_str()).and_then(value);
        match Group::of(pod, value.is_some()) {
            Group::Ready => {
                usage.measured += 1;
                usage.used = usage.used.saturating_add(value.unwrap_or(0));
            }
            Group::Unready => usage.unready.add(0),
            Group::Missing => usage.missing.add(0),
        }
    }
    let wanted = usage.replicas(Target::AverageValue(goal), replicas.current, replicas.tolerance);
    let wanted = wanted.ok_or("no metrics returned from custom metrics API")?;
    let average = usage.used / i64::from(usage.measured.max(1));
    let current =
        MetricValueStatus { average_value: Some(quantity(average)), ..MetricValueStatus::default() };
    let pods = Some(PodsMetricStatus { metric: metric.clone(), current });
    Ok((wanted, MetricStatus { pods, ..MetricStatus::default() }))
}

async fn of_object(
    client: &Client,
    key: &Key,
    metric: &MetricIdentifier,
    object: &CrossVersionObjectReference,
    target: &MetricTarget,
    replicas: Replicas<'_>,
) -> Result<(i32, MetricStatus), String> {
    let version = object.api_version.as_deref().unwrap_or("v1");
    let served = Resources::discover(client).await.map_err(|error| message(&error))?;
    let resource =
        served.get(version, &object.kind).ok_or_else(|| format!("no matches for kind {:?}", object.kind))?;
    let path = format!(
        "namespaces/{}/{}/{}/{}",
        key.namespace,
        resource.name_with_group(),
        object.name,
        metric.name
    );
    let items = custom(client, &path, &query(&[("metricLabelSelector", selector(metric)?)])).await?;
    let value = items.first().and_then(value).ok_or("no metrics returned from custom metrics API")?;
    let (wanted, current) = wanted(client, key, value, target, replicas).await?;
    let described_object = object.clone();
    let object = Some(ObjectMetricStatus { metric: metric.clone(), current, described_object });
    Ok((wanted, MetricStatus { object, ..MetricStatus::default() }))
}

async fn external(
    client: &Client,
    key: &Key,
    metric: &MetricIdentifier,
    target: &MetricTarget,
    replicas: Replicas<'_>,
) -> Result<(i32, MetricStatus), String> {
    let query = query(&[("labelSelector", selector(metric)?)]);
    let path =
        format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{}{query}", key.namespace, metric.name);
    let items = get(client, path)
        .await
        .map_err(|error| format!("unable to fetch metrics from external metrics API: {}", message(&error)))?;
    if items.is_empty() {
        return Err("no metrics returned from external metrics API".to_owned());
    }
    let sum = items.iter().filter_map(value).fold(0_i64, i64::saturating_add);
    let (wanted, current) = wanted(client, key, sum, target, replicas).await?;
    let external = Some(ExternalMetricStatus { metric: metric.clone(), current });
    Ok((wanted, MetricStatus { external, ..MetricStatus::default() }))
}

/// Returns the replicas for one value, in thousandths, and the status of the metric.
async fn wanted(
    client: &Client,
    key: &Key,
    value: i64,
    target: &MetricTarget,
    replicas: Replicas<'_>,
) -> Result<(i32, MetricValueStatus), String> {
    if let Some(goal) = milli(target.average_value.as_ref()) {
        let current = MetricValueStatus {
            average_value: Some(quantity(value / i64::from(replicas.current.max(1)))),
            ..MetricValueStatus::default()
        };
        return Ok((per_pod(value, goal, replicas.current, replicas.tolerance), current));
    }
    let goal = milli(target.value.as_ref()).ok_or("the metric has no target")?;
    let pods = pods_of(client, key, replicas.selector).await?;
    let ready = pods.iter().filter(|pod| pods::is_active(pod) && pods::is_ready(pod)).count();
    let current = MetricValueStatus { value: Some(quantity(value)), ..MetricValueStatus::default() };
    Ok((total(value, goal, ready, replicas.current, replicas.tolerance), current))
}

/// Returns the replicas at which each has an average value.
fn per_pod(value: i64, goal: i64, current: i32, tolerance: Tolerance) -> i32 {
    let ratio = value as f64 / (goal.max(1) as f64 * f64::from(current));
    if current > 0 && tolerance.covers(ratio) {
        return current;
    }
    (value as f64 / goal.max(1) as f64).ceil() as i32
}

/// Returns the replicas at which the value is met, if it falls as they grow.
fn total(value: i64, goal: i64, ready: usize, current: i32, tolerance: Tolerance) -> i32 {
    let ratio = value as f64 / goal.max(1) as f64;
    if current == 0 {
        // From zero: any load starts as many as the ratio asks for.
        return ratio.ceil() as i32;
    }
    if tolerance.covers(ratio) {
        return current;
    }
    (ratio * ready as f64).ceil() as i32
}

async fn pods_of(client: &Client, key: &Key, selector: &str) -> Result<Vec<Pod>, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let pods = pods.list(&ListParams::default().labels(selector)).await;
    pods.map(|list| list.items).map_err(|error| message(&error))
}

async fn custom(client: &Client, path: &str, query: &str) -> Result<Vec<Value>, String> {
    let mut last = String::new();
    for version in CUSTOM_VERSIONS {
        match get(client, format!("/apis/custom.metrics.k8s.io/{version}/{path}{query}")).await {
            Ok(items) => return Ok(items),
            Err(error) => {
                last = message(&error);
                if !is_not_found(&error) {
                    break;
                }
            }
        }
    }
    Err(format!("unable to fetch metrics from custom metrics API: {last}"))
}

async fn get(client: &Client, path: String) -> orlop_client::Result<Vec<Value>> {
    let request = http::Request::get(path).body(Vec::new()).map_err(orlop_client::Error::HttpError)?;
    let mut answer: Value = client.request(request).await?;
    match answer["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Ok(Vec::new()),
    }
}

fn selector(metric: &MetricIdentifier) -> Result<String, String> {
    let Some(selector) = metric.selector.clone().filter(|selector| *selector != LabelSelector::default())
    else {
        return Ok(String::new());
    };
    let selector = orlop_client::core::Selector::try_from(selector).map_err(|error| error.to_string())?;
    Ok(selector.to_string())
}

/// Returns the query of parameters that are not empty.
fn query(parameters: &[(&str, String)]) -> String {
    let encoded: Vec<String> = parameters
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| {
            let value: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            format!("{name}={value}")
        })
        .collect();
    if encoded.is_empty() { String::new() } else { format!("?{}", encoded.join("&")) }
}

/// Returns the value of an item in thousandths.
fn value(item: &Value) -> Option<i64> {
    milli(Some(&Quantity(item["value"].as_str()?.to_owned())))
}

fn milli(quantity: Option<&Quantity>) -> Option<i64> {
    // Amounts of cpu are in thousandths.
    amount("cpu", quantity?)
}

fn quantity(milli: i64) -> Quantity {
    Quantity(if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_follow_values_and_averages() {
        let tolerance = Tolerance::default();
        assert_eq!(per_pod(10_000, 2_000, 3, tolerance), 5);
        assert_eq!(per_pod(10_000, 5_000, 2, tolerance), 2);
        assert_eq!(per_pod(10_000, 2_000, 0, tolerance), 5, "from zero");
        assert_eq!(total(30_000, 10_000, 2, 2, tolerance), 6);
        assert_eq!(total(10_500, 10_000, 2, 2, tolerance), 2, "within the tolerance");
        assert_eq!(total(0, 10_000, 2, 2, tolerance), 0);
        assert_eq!(total(25_000, 10_000, 0, 0, tolerance), 3, "from zero");
    }

    #[test]
    fn values_are_quantities() {
        assert_eq!(value(&json!({"value": "1500m"})), Some(1500));
        assert_eq!(value(&json!({"value": "2k"})), Some(2_000_000));
        assert_eq!([1500, 3000].map(|milli| quantity(milli).0), ["1500m", "3"]);
        assert_eq!(query(&[("a", "x=y".to_owned()), ("b", String::new())]), "?a=%78%3D%79");
    }
}
