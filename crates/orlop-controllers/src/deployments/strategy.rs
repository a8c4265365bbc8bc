//! The strategy of a Deployment.

use k8s_openapi::{
    api::apps::v1::{Deployment, RollingUpdateDeployment},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::workload::int_or_percent::{Rounding, scaled};

pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// Returns the number of replicas that is wanted.
pub(super) fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// Returns the time limit of progress, unless there is none.
pub(super) fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    let deadline = deployment.spec.progress_deadline_seconds;
    deadline.filter(|deadline| *deadline != i32::MAX)
}

/// Returns maxSurge and maxUnavailable as numbers. Not both are zero, or nothing would ever move.
fn limits(deployment: &Deployment) -> (i32, i32) {
    let quarter = || IntOrString::String("25%".to_owned());
    let strategy = deployment.spec.strategy.as_ref();
    let rolling: RollingUpdateDeployment =
        strategy.and_then(|strategy| strategy.rolling_update.clone()).unwrap_or_default();
    let total = replicas(deployment);
    let surge = scaled(&rolling.max_surge.unwrap_or_else(quarter), total, Rounding::Up);
    let unavailable = scaled(&rolling.max_unavailable.unwrap_or_else(quarter), total, Rounding::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// Returns the number of pods that may be created beyond those wanted.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_recreate(deployment) { 0 } else { limits(deployment).0 }
}

/// Returns the number of pods that may be unavailable.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    let total = replicas(deployment);
    if is_recreate(deployment) || total == 0 { 0 } else { limits(deployment).1.min(total) }
}
