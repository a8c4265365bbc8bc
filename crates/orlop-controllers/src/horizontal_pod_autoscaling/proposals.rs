//! Proposals of several metrics, and the texts about them. Pure.

use k8s_openapi::{
    api::autoscaling::v2::{ContainerResourceMetricSource, MetricSpec, MetricTarget, ResourceMetricSource},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::custom::Failure;

/// Number of replicas that a metric asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// Name of the metric in conditions and events.
    pub(super) metric: String,
}

/// Metrics that do not permit a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Undecided {
    /// Reason and text of the condition ScalingActive.
    pub(super) condition: Failure,
    /// Text of the event.
    pub(super) message: String,
}

/// Returns the largest proposal. Without any there is no decision, and none to scale down while a metric is missing: it might
/// ask for more.
pub(super) fn largest(
    proposals: Vec<Result<Proposal, (&MetricSpec, Failure)>>,
    current: i32,
) -> Result<Proposal, Undecided> {
    let count = proposals.len();
    let mut largest: Option<Proposal> = None;
    let mut failures = Vec::new();
    for proposal in proposals {
        match proposal {
            Ok(proposal) if largest.as_ref().is_none_or(|known| proposal.replicas > known.replicas) => {
                largest = Some(proposal);
            }
            Ok(_) => {}
            Err(failure) => failures.push(failure),
        }
    }
    let first = failures.first().map(|(metric, (reason, text))| Undecided {
        condition: (*reason, format!("the HPA was unable to compute the replica count: {text}")),
        message: format!(
            "invalid metrics ({} invalid out of {count}), first error is: {}: {text}",
            failures.len(),
            failed(metric)
        ),
    });
    match (largest, first) {
        (Some(largest), None) => Ok(largest),
        (Some(largest), Some(_)) if largest.replicas >= current => Ok(largest),
        (_, Some(undecided)) => Err(undecided),
        (None, None) => {
            let text = "no metrics are specified".to_owned();
            Err(Undecided { condition: ("InvalidMetricSourceType", text.clone()), message: text })
        }
    }
}

/// Returns how the error of a metric begins.
fn failed(metric: &MetricSpec) -> String {
    match metric {
        MetricSpec { resource: Some(source), .. } => {
            format!("failed to get {} resource metric value", source.name)
        }
        MetricSpec { container_resource: Some(source), .. } => {
            format!("failed to get {} container metric value", source.container)
        }
        MetricSpec { external: Some(source), .. } => {
            format!("failed to get {} external metric value", source.metric.name)
        }
        MetricSpec { object: Some(_), .. } => "failed to get object metric value".to_owned(),
        _ => "failed to get pods metric value".to_owned(),
    }
}

/// Returns the name of a metric in conditions and events.
pub(super) fn name_of(metric: &MetricSpec) -> String {
    let of_resource = |name: &str, target: &MetricTarget, container: &str| match target.average_utilization {
        Some(_) => format!("{name}{container} resource utilization (percentage of request)"),
        None => format!("{name} resource"),
    };
    let external = |name: &str, selector: Option<&LabelSelector>| {
        format!("external metric {name}({})", go_text(selector))
    };
    match metric {
        MetricSpec { resource: Some(ResourceMetricSource { name, target }), .. } => {
            of_resource(name, target, "")
        }
        MetricSpec {
            container_resource: Some(ContainerResourceMetricSource { name, target, .. }), ..
        } => of_resource(name, target, " container"),
        MetricSpec { object: Some(source), .. } if source.target.average_value.is_none() => {
            format!("{} metric {}", source.described_object.kind, source.metric.name)
        }
        MetricSpec { object: Some(source), .. } => {
            external(&source.metric.name, source.metric.selector.as_ref())
        }
        MetricSpec { external: Some(source), .. } => {
            external(&source.metric.name, source.metric.selector.as_ref())
        }
        MetricSpec { pods: Some(source), .. } => format!("pods metric {}", source.metric.name),
        _ => metric.type_.clone(),
    }
}

/// Returns a selector in the text that Go prints of it.
fn go_text(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.clone().unwrap_or_default().join(" ");
        let (key, operator) = (&expression.key, &expression.operator);
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.collect::<String>(),
        expressions.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metric(value: serde_json::Value) -> MetricSpec {
        serde_json::from_value(value).unwrap()
    }

    fn cpu() -> MetricSpec {
        metric(json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}))
    }

    fn proposal(replicas: i32) -> Result<Proposal, (&'static MetricSpec, Failure)> {
        Ok(Proposal { replicas, metric: format!("metric of {replicas}") })
    }

    #[test]
    fn largest_proposal_counts_and_a_missing_metric_prevents_scaling_down() {
        let cpu = cpu();
        let failed = || Err((&cpu, ("FailedGetResourceMetric", "no figures".to_owned())));
        let replicas = |proposals, current| largest(proposals, current).map(|proposal| proposal.replicas);
        assert_eq!(replicas(vec![proposal(3), proposal(7), proposal(5)], 4), Ok(7));
        assert_eq!(replicas(vec![proposal(2)], 4), Ok(2));
        assert_eq!(replicas(vec![proposal(6), failed()], 4), Ok(6), "to more");
        assert_eq!(replicas(vec![proposal(4), failed()], 4), Ok(4));
        let undecided = largest(vec![proposal(2), failed()], 4).unwrap_err();
        assert_eq!(undecided.condition.0, "FailedGetResourceMetric");
        assert_eq!(
            undecided.message,
            "invalid metrics (1 invalid out of 2), first error is: failed to get cpu resource metric value: no figures"
        );
        assert!(
            largest(vec![failed(), failed()], 4)
                .unwrap_err()
                .message
                .starts_with("invalid metrics (2 invalid")
        );
    }

    #[test]
    fn names_of_metrics_match_kubernetes() {
        assert_eq!(name_of(&cpu()), "cpu resource utilization (percentage of request)");
        let container = metric(json!({"type": "ContainerResource", "containerResource": {"name": "memory",
            "container": "main", "target": {"type": "Utilization", "averageUtilization": 50}}}));
        assert_eq!(name_of(&container), "memory container resource utilization (percentage of request)");
        let pods = metric(json!({"type": "Pods", "pods": {"metric": {"name": "requests"},
            "target": {"type": "AverageValue", "averageValue": "10"}}}));
        assert_eq!(name_of(&pods), "pods metric requests");
        let external = metric(json!({"type": "External", "external": {"metric": {"name": "queue",
            "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "10"}}}));
        assert_eq!(
            name_of(&external),
            "external metric queue(&LabelSelector{MatchLabels:map[string]string{a: b,},\
             MatchExpressions:[]LabelSelectorRequirement{},})"
        );
    }
}
