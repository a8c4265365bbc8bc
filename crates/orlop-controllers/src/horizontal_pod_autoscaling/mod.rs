//! HorizontalPodAutoscalers, on the metrics that aggregated APIs serve: `metrics.k8s.io`, `custom.metrics.k8s.io` and
//! `external.metrics.k8s.io`. Without them replicas are only kept within the limits.

mod behavior;
mod custom;
mod decision;
mod groups;
mod proposals;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{
        autoscaling::{
            v1::Scale,
            v2::{
                ContainerResourceMetricStatus, HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition,
                MetricSpec, MetricStatus, MetricValueStatus, ResourceMetricStatus,
            },
        },
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use orlop_client::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    core::PartialObjectMeta,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    behavior::{History, Rules, Stabilized},
    decision::{Limit, Target, Tolerance, Usage},
    groups::{Group, Sample},
    proposals::{Proposal, Undecided},
};
use crate::{
    discovery::{Metadata, Resources},
    runtime::{Action, Context, EventForm, Informer, Key, Manager, Recorder},
    status::{is_conflict, is_not_found, message},
    workload::{
        pods,
        resources::{self, amount},
        time::{now, seconds},
    },
};

/// Name of the controller.
pub(crate) const NAME: &str = "horizontal-pod-autoscaler-controller";
/// Source of its events.
const COMPONENT: &str = "horizontal-pod-autoscaler";
const CONCURRENCY: usize = 5;
const PERIOD: Duration = Duration::from_secs(15);

/// Registers the controller.
pub(crate) fn register(manager: &mut Manager) {
    manager.register(NAME, run);
}

struct Controller {
    client: Client,
    autoscalers: Arc<Informer<HorizontalPodAutoscaler>>,
    recorder: Arc<Recorder>,
    histories: Mutex<HashMap<Key, History>>,
    /// Label selectors of the targets, as they were last read.
    selectors: Mutex<HashMap<Key, String>>,
}

async fn run(context: Context) {
    let autoscalers = context.informers.of::<HorizontalPodAutoscaler>();
    autoscalers.synced().await;
    let controller = Arc::new(Controller {
        client: context.client.clone(),
        autoscalers: autoscalers.clone(),
        recorder: context.recorder(COMPONENT, EventForm::Counted),
        histories: Mutex::default(),
        selectors: Mutex::default(),
    });
    let queue = context.work_queue::<Key>();
    let of_autoscalers = queue.clone();
    let subscription = autoscalers.subscribe(move |change| {
        // Its own status does not requeue it.
        let is_other =
            change.old.as_ref().zip(change.new.as_ref()).is_none_or(|(old, new)| old.spec != new.spec);
        if let Some(new) = change.new.as_ref().filter(|_| is_other) {
            of_autoscalers.add(Key::of(&**new));
        }
    });
    queue
        .run(CONCURRENCY, |key| {
            let controller = controller.clone();
            async move { controller.reconcile(&key).await }
        })
        .await;
    drop(subscription);
}

/// Replacements of the scale within one evaluation, of which all but the last lost against another write.
const RESCALES_MAX: usize = 5;

/// Outcome of evaluating a target.
#[derive(Default)]
struct Evaluation {
    /// Replicas of the target. `None` if its scale could not be read.
    current: Option<i32>,
    /// Replicas that it should have. `None` if that could not be decided or done.
    desired: Option<i32>,
    metrics: Vec<MetricStatus>,
    conditions: Vec<(&'static str, bool, &'static str, String)>,
    was_rescaled: bool,
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> orlop_client::Result<Action> {
        let Some(autoscaler) = self.autoscalers.get(key) else {
            self.histories.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            self.selectors.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            return Ok(Action::Done);
        };
        let mut changed = HorizontalPodAutoscaler::clone(&autoscaler);
        let evaluation = self.evaluate(key, &autoscaler).await?;
        let status = changed.status.get_or_insert_default();
        if evaluation.was_rescaled {
            status.last_scale_time = Some(now());
        }
        status.observed_generation = autoscaler.metadata.generation;
        if let Some(current) = evaluation.current {
            status.current_replicas = Some(current);
            status.current_metrics = (!evaluation.metrics.is_empty()).then_some(evaluation.metrics);
        }
        if let Some(desired) = evaluation.desired {
            status.desired_replicas = desired;
        }
        let conditions = status.conditions.get_or_insert_default();
        for (type_, is_true, reason, message) in evaluation.conditions {
            set_condition(conditions, type_, is_true, reason, message);
        }
        if changed.status != autoscaler.status {
            let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), &key.namespace);
            match api.replace_status(&key.name, &PostParams::default(), &changed).await {
                Ok(written) => self.autoscalers.wrote(written),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Action::After(PERIOD))
    }

    /// Looks at the target, and scales it.
    async fn evaluate(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
    ) -> orlop_client::Result<Evaluation> {
        let spec = &autoscaler.spec;
        let target = &spec.scale_target_ref;
        let mut evaluation = Evaluation::default();
        let served = Resources::discover(&self.client).await?;
        let resource = served.get(target.api_version.as_deref().unwrap_or("v1"), &target.kind);
        let objects = resource.map(|resource| resource.objects(&self.client, Some(&key.namespace)));
        let scale = match &objects {
            Some(objects) => {
                objects.get_subresource::<Scale>("scale", &target.name).await.map_err(|error| message(&error))
            }
            None => Err(format!("no matches for kind {:?}", target.kind)),
        };
        let (Some(objects), Ok(scale)) = (&objects, &scale) else {
            let text = scale.err().unwrap_or_default();
            let text = format!("the HPA controller was unable to get the target's current scale: {text}");
            self.recorder.warning(autoscaler, "FailedGetScale", text.clone());
            evaluation.conditions.push(("AbleToScale", false, "FailedGetScale", text));
            return Ok(evaluation);
        };
        let scale_status = scale.status.clone().unwrap_or_default();
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        evaluation.current = Some(current);
        let (min, max) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let succeeded = "the HPA controller was able to get the target's current scale".to_owned();
        evaluation.conditions.push(("AbleToScale", true, "SucceededGetScale", succeeded));
        if current == 0 && min != 0 {
            let text = "scaling is disabled since the replica count of the target is zero".to_owned();
            evaluation.conditions.push(("ScalingActive", false, "ScalingDisabled", text));
            evaluation.desired = Some(0);
            return Ok(evaluation);
        }
        let (desired, reason) = if current > max {
            (max, "Current number of replicas above Spec.MaxReplicas".to_owned())
        } else if current < min {
            (min, "Current number of replicas below Spec.MinReplicas".to_owned())
        } else {
            let selector = scale_status.selector.unwrap_or_default();
            match self.recommend(key, autoscaler, &selector, current, &mut evaluation).await {
                Ok(recommended) => recommended,
                Err(Undecided { condition: (reason, text), message }) => {
                    evaluation.conditions.push(("ScalingActive", false, reason, text));
                    self.recorder.warning(autoscaler, "FailedComputeMetricsReplicas", message);
                    return Ok(evaluation);
                }
            }
        };
        if desired == current {
            evaluation.desired = Some(current);
            return Ok(evaluation);
        }
        match rescale(objects, &target.name, scale.clone(), desired).await {
            Ok(()) => {
                self.with_history(key, current, |history| history.scaled(current, desired, Instant::now()));
                let text = format!("the HPA controller was able to update the target scale to {desired}");
                evaluation.conditions.push(("AbleToScale", true, "SucceededRescale", text));
                let text = format!("New size: {desired}; reason: {reason}");
                self.recorder.normal(autoscaler, "SuccessfulRescale", text);
                evaluation.desired = Some(desired);
                evaluation.was_rescaled = true;
            }
            Err(error) => {
                let error = message(&error);
                let text = format!("New size: {desired}; reason: {reason}; error: {error}");
                self.recorder.warning(autoscaler, "FailedRescale", text);
                let text = format!("the HPA controller was unable to update the target scale: {error}");
                evaluation.conditions.push(("AbleToScale", false, "FailedUpdateScale", text));
            }
        }
        Ok(evaluation)
    }

    /// Returns the number of replicas that the metrics ask for, within the limits, and the reason of a change.
    async fn recommend(
        &self,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        selector: &str,
        current: i32,
        evaluation: &mut Evaluation,
    ) -> Result<(i32, String), Undecided> {
        if selector.is_empty() {
            // It would select all pods of the namespace.
            let message = "selector is required".to_owned();
            self.recorder.warning(autoscaler, "SelectorRequired", message.clone());
            let text = "the HPA target's scale is missing a selector".to_owned();
            return Err(Undecided { condition: ("InvalidSelector", text), message });
        }
        if let Some(other) = self.rival(key, selector).await {
            let mut both = [key, &other].map(|key| format!("{{{} {}}}", key.name, key.namespace));
            both.sort_unstable();
            let message = format!(
                "pods by selector {selector} are controlled by more than one HPA (e.g. [{}])",
                both.join(" ")
            );
            self.recorder.warning(autoscaler, "AmbiguousSelector", message.clone());
            return Err(Undecided { condition: ("AmbiguousSelector", message.clone()), message });
        }
        let rules = Rules::of(autoscaler.spec.behavior.as_ref());
        let mut proposals = Vec::new();
        for metric in autoscaler.spec.metrics.iter().flatten() {
            proposals.push(match self.measure(key, metric, selector, current, rules.tolerance()).await {
                Ok((replicas, status)) => {
                    evaluation.metrics.push(status);
                    Ok(Proposal { replicas, metric: proposals::name_of(metric) })
                }
                Err((reason, text)) => {
                    self.recorder.warning(autoscaler, reason, text.clone());
                    Err((metric, (reason, text)))
                }
            });
        }
        let Proposal { replicas: wanted, metric } = proposals::largest(proposals, current)?;
        let text = format!("the HPA was able to successfully calculate a replica count from {metric}");
        evaluation.conditions.push(("ScalingActive", true, "ValidMetricFound", text));
        let bounds = (autoscaler.spec.min_replicas.unwrap_or(1), autoscaler.spec.max_replicas);
        let decision = self.with_history(key, current, |history| {
            rules.decide(history, wanted, current, bounds, Instant::now())
        });
        let (is_stable, reason, text) = describe_stabilization(decision.stabilized.as_ref());
        evaluation.conditions.push(("AbleToScale", is_stable, reason, text.to_owned()));
        let (is_limited, reason, text) = describe_limit(&decision.limit);
        evaluation.conditions.push(("ScalingLimited", is_limited, reason, text.to_owned()));
        let reason = match wanted > current {
            true => format!("{metric} above target"),
            false => "All metrics below target".to_owned(),
        };
        Ok((decision.replicas, reason))
    }

    /// Returns another autoscaler whose target has some of the same pods: each would undo what the other does.
    async fn rival(&self, key: &Key, selector: &str) -> Option<Key> {
        let others: Vec<(Key, String)> = {
            let mut selectors = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
            selectors.insert(key.clone(), selector.to_owned());
            let others =
                selectors.iter().filter(|(other, _)| other.namespace == key.namespace && *other != key);
            others.map(|(other, selector)| (other.clone(), selector.clone())).collect()
        };
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), &key.namespace);
        for (other, of_other) in others {
            let of_both = ListParams::default().labels(&format!("{selector},{of_other}")).limit(1);
            // If the list fails, so do the metrics.
            if pods.list(&of_both).await.is_ok_and(|found| !found.items.is_empty()) {
                return Some(other);
            }
        }
        None
    }

    /// Uses the history of an autoscaler, which begins with the first evaluation.
    fn with_history<T>(&self, key: &Key, current: i32, with: impl FnOnce(&mut History) -> T) -> T {
        let mut all = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        with(all.entry(key.clone()).or_insert_with(|| History::starting(current, Instant::now())))
    }

    /// Measures one metric.
    async fn measure(
        &self,
        key: &Key,
        metric: &MetricSpec,
        selector: &str,
        current: i32,
        tolerance: Tolerance,
    ) -> Result<(i32, MetricStatus), custom::Failure> {
        let replicas = custom::Replicas { current, selector, tolerance };
        if let Some(measured) = custom::measure(&self.client, key, metric, replicas).await {
            return measured;
        }
        let measured = self.measure_resource(key, metric, selector, current, tolerance).await;
        measured.map_err(|text| ("FailedGetResourceMetric", text))
    }

    /// Measures cpu or memory of pods.
    async fn measure_resource(
        &self,
        key: &Key,
        metric: &MetricSpec,
        selector: &str,
        current: i32,
        tolerance: Tolerance,
    ) -> Result<(i32, MetricStatus), String> {
        let (name, container, target) = match (&metric.resource, &metric.container_resource) {
            (Some(source), _) if metric.type_ == "Resource" => (source.name.as_str(), None, &source.target),
            (_, Some(source)) if metric.type_ == "ContainerResource" => {
                (source.name.as_str(), Some(source.container.as_str()), &source.target)
            }
            _ => return Err(format!("metrics of type {:?} are not supported", metric.type_)),
        };
        let goal = match (target.average_utilization, &target.average_value) {
            (Some(percent), _) => Target::Utilization(percent),
            (None, Some(value)) => Target::AverageValue(amount(name, value).unwrap_or(0)),
            (None, None) => return Err("the metric has no target".to_owned()),
        };
        let usage = self.usage(key, name, container, selector).await.map_err(|error| {
            format!(
                "failed to get {name} utilization: unable to get metrics for resource {name}: unable to fetch metrics from resource metrics API: {}",
                message(&error)
            )
        })?;
        let wanted = usage.replicas(goal, current, tolerance).ok_or_else(|| {
            format!("failed to get {name} utilization: no metrics returned from resource metrics API")
        })?;
        let average = usage.used / i64::from(usage.measured.max(1));
        let average = if name == "cpu" { format!("{average}m") } else { average.to_string() };
        let value = MetricValueStatus {
            average_utilization: usage.percent().filter(|_| matches!(goal, Target::Utilization(_))),
            average_value: Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity(average)),
            value: None,
        };
        let mut status = MetricStatus { type_: metric.type_.clone(), ..MetricStatus::default() };
        let name = name.to_owned();
        match container {
            None => status.resource = Some(ResourceMetricStatus { name, current: value }),
            Some(container) => {
                let container = container.to_owned();
                status.container_resource =
                    Some(ContainerResourceMetricStatus { name, container, current: value });
            }
        }
        Ok((wanted, status))
    }

    /// Adds up the usage of a target's pods, or of one container of each.
    async fn usage(
        &self,
        key: &Key,
        name: &str,
        container: Option<&str>,
        selector: &str,
    ) -> orlop_client::Result<Usage> {
        let is_counted = |found: Option<&str>| container.is_none() || container == found;
        let parameters = ListParams::default().labels(selector);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let pods = pods.list(&parameters).await?.items;
        let query: String = selector.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path =
            format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods?labelSelector={query}", key.namespace);
        let request = http::Request::get(path).body(Vec::new()).map_err(orlop_client::Error::HttpError)?;
        let metrics: Value = self.client.request(request).await?;
        let mut usage = Usage::default();
        for pod in pods.iter().filter(|pod| pods::is_active(pod)) {
            let items = metrics["items"].as_array().into_iter().flatten();
            let own = items.into_iter().find(|item| item["metadata"]["name"] == json!(pod.name_any()));
            let requested = match container {
                None => pod.spec.as_ref().map(resources::of_pod).map_or(0, |requests| requests.get(name)),
                Some(container) => request_of(pod, container, name),
            };
            match Group::of_resource(pod, name, own.and_then(Sample::of), Timestamp::now()) {
                Group::Ready => {}
                Group::Unready => {
                    usage.unready.add(requested);
                    continue;
                }
                Group::Missing => {
                    usage.missing.add(requested);
                    continue;
                }
            }
            usage.measured += 1;
            usage.requested = usage.requested.saturating_add(requested);
            let containers = own.and_then(|own| own["containers"].as_array()).into_iter().flatten();
            for found in containers.filter(|found| is_counted(found["name"].as_str())) {
                let text = found["usage"][name].as_str().unwrap_or("0").to_owned();
                let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text);
                usage.used = usage.used.saturating_add(amount(name, &quantity).unwrap_or(0));
            }
        }
        Ok(usage)
    }
}

/// Gives a target its new size, unless something else than another write is in the way.
async fn rescale(
    objects: &Api<Metadata>,
    name: &str,
    mut scale: Scale,
    desired: i32,
) -> orlop_client::Result<()> {
    let mut tries = 1;
    loop {
        scale.spec.get_or_insert_default().replicas = Some(desired);
        match objects.replace_subresource("scale", name, &PostParams::default(), &scale).await {
            Err(error) if is_conflict(&error) && tries < RESCALES_MAX => {
                tries += 1;
                scale = objects.get_subresource("scale", name).await?;
            }
            replaced => return replaced.map(drop),
        }
    }
}

type Description = (bool, &'static str, &'static str);

fn describe_stabilization(stabilized: Option<&Stabilized>) -> Description {
    match stabilized {
        Some(Stabilized::Down) => (
            true,
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        ),
        Some(Stabilized::Up) => (
            true,
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        ),
        None => (true, "ReadyForNewScale", "recommended size matches current size"),
    }
}

fn describe_limit(limit: &Limit) -> Description {
    match limit {
        Limit::None => (false, "DesiredWithinRange", "the desired count is within the acceptable range"),
        Limit::TooFew => {
            (true, "TooFewReplicas", "the desired replica count is less than the minimum replica count")
        }
        Limit::TooMany => {
            (true, "TooManyReplicas", "the desired replica count is more than the maximum replica count")
        }
        Limit::ScaleUp => (
            true,
            "ScaleUpLimit",
            "the desired replica count is increasing faster than the maximum scale rate",
        ),
        Limit::ScaleDown => (
            true,
            "ScaleDownLimit",
            "the desired replica count is decreasing faster than the maximum scale rate",
        ),
    }
}

/// Returns the request of one container.
fn request_of(pod: &Pod, container: &str, name: &str) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let found = containers.into_iter().find(|found| found.name == container);
    let requests = found.and_then(|found| found.resources.as_ref()?.requests.as_ref());
    requests.and_then(|requests| amount(name, requests.get(name)?)).unwrap_or(0)
}

fn set_condition(
    conditions: &mut Vec<HorizontalPodAutoscalerCondition>,
    type_: &str,
    is_true: bool,
    reason: &str,
    message: String,
) {
    let status = if is_true { "True" } else { "False" };
    let known = conditions.iter().find(|known| known.type_ == type_ && known.status == status);
    let since = known.and_then(|known| known.last_transition_time.clone());
    let position = conditions.iter().position(|known| known.type_ == type_);
    let condition = HorizontalPodAutoscalerCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: since.or_else(|| Some(Time(seconds(Timestamp::now())))),
        observed_generation: None,
    };
    match position {
        Some(position) => conditions[position] = condition,
        None => conditions.push(condition),
    }
}
