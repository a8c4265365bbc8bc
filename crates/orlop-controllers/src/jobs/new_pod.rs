//! Pods of a job. Pure.

use k8s_openapi::api::{
    batch::v1::{Job, JobSpec},
    core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod},
};
use orlop_client::ResourceExt;

use super::{
    plan::NewPod,
    pod_state::{COMPLETION_INDEX, FAILURE_COUNT, IGNORED_FAILURE_COUNT, TRACKING},
};
use crate::workload::{
    ownership::controller_reference,
    pod_control::{name_prefix, pod_of_template},
};

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Returns a pod to create.
pub(super) fn build(job: &Job, spec: &JobSpec, new: &NewPod) -> Pod {
    let mut pod = pod_of_template(&spec.template, &job.name_any(), controller_reference(job));
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    let Some(index) = new.index else { return pod };
    let text = index.to_string();
    pod.metadata.generate_name = Some(name_prefix(&format!("{}-{index}", job.name_any())));
    pod.metadata.labels.get_or_insert_default().insert(COMPLETION_INDEX.to_owned(), text.clone());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(COMPLETION_INDEX.to_owned(), text);
    if let Some((failures, ignored)) = new.failures {
        annotations.insert(FAILURE_COUNT.to_owned(), failures.to_string());
        if ignored > 0 {
            annotations.insert(IGNORED_FAILURE_COUNT.to_owned(), ignored.to_string());
        }
    }
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{}-{index}", job.name_any()));
        let inits = spec.init_containers.iter_mut().flatten();
        inits.chain(&mut spec.containers).for_each(add_index);
    }
    pod
}

/// Gives a container its index, unless it defines the variable itself.
fn add_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector {
        field_path: format!("metadata.labels['{COMPLETION_INDEX}']"),
        ..ObjectFieldSelector::default()
    };
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    });
}
