//! IP families of a Service: defaulting and checks against those of the cluster.

use std::net::IpAddr;

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::{is_headless, validation::validate_addresses};
use crate::{
    accessors::{map, text, texts},
    defaulting,
};

/// A family of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the family of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.name() == name)
    }

    fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

/// Completes `ipFamilyPolicy`, `ipFamilies` and `clusterIPs` of a service before addresses are allocated. `configured`
/// are the families of the cluster; the first is the default. Returns the errors of families that the cluster or the
/// policy does not allow.
pub fn complete_ip_families(
    service: &mut Value,
    old: Option<&Value>,
    configured: &[IpFamily],
) -> Vec<FieldError> {
    let path = FieldPath::root("spec");
    if text(service, "/spec/type") == "ExternalName" || old.is_some_and(|old| keeps_dual_stack(service, old))
    {
        return Vec::new();
    }
    let selectorless =
        text(service, "/spec/clusterIP") == "None" && map(service, "/spec/selector").is_empty();
    default_policy(service, old, selectorless);
    let errors = validate_addresses(service, service.get("spec").unwrap_or(&Value::Null), &path);
    if !errors.is_empty() {
        return errors;
    }
    let mut errors = old.map_or_else(Vec::new, |old| release_second(service, old));
    errors.extend(refuse_two_in_single_stack(service));
    errors.extend(infer_families(service, configured));
    if !errors.is_empty() {
        return errors;
    }
    let Some(default) = configured.first().copied() else { return errors };
    let is_single = policy(service) == "SingleStack";
    if selectorless {
        // Whoever manages the endpoints decides their families, whatever those of the cluster are.
        let mut wanted = families(service);
        if wanted.is_empty() {
            wanted.push(default);
        }
        if let ([one], false) = (wanted.as_slice(), is_single) {
            wanted.push(one.other());
        }
        set_families(service, &wanted);
        return errors;
    }
    if policy(service) == "RequireDualStack" && configured.len() < 2 {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(&path.child("ipFamilyPolicy"), policy(service), detail));
    }
    let mut wanted = families(service);
    for (index, family) in wanted.iter().enumerate().filter(|(_, family)| !configured.contains(family)) {
        let at = path.child("ipFamilies").index(index);
        errors.push(FieldError::invalid(&at, family.name(), "not configured on this cluster"));
    }
    if !errors.is_empty() {
        return errors;
    }
    if wanted.is_empty() {
        wanted.push(default);
    }
    if let ([one], false, 2) = (wanted.as_slice(), is_single, configured.len()) {
        wanted.push(one.other());
    }
    set_families(service, &wanted);
    errors
}

/// Returns true if an update leaves the addresses of a PreferDualStack service as they are. Such a service is not
/// upgraded or downgraded when the cluster's families change.
fn keeps_dual_stack(service: &Value, old: &Value) -> bool {
    let same = |pointer: &str| texts(service, pointer) == texts(old, pointer);
    let old_policy = text(old, "/spec/ipFamilyPolicy");
    text(service, "/spec/type") == text(old, "/spec/type")
        && policy(service) == "PreferDualStack"
        && matches!(old_policy, "" | "PreferDualStack")
        && same("/spec/clusterIPs")
        && same("/spec/ipFamilies")
}

fn default_policy(service: &mut Value, old: Option<&Value>, selectorless: bool) {
    if !policy(service).is_empty() {
        return;
    }
    let before = old.map(policy).filter(|policy| !policy.is_empty());
    let default = if selectorless { "RequireDualStack" } else { "SingleStack" };
    let policy = before.unwrap_or(default).to_owned();
    if let Some(spec) = defaulting::object_mut(service, "spec") {
        spec["ipFamilyPolicy"] = policy.into();
    }
}

/// Releases the second address and family of a service that becomes SingleStack. Others may not drop them.
fn release_second(service: &mut Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (field, second) in [("clusterIPs", "secondary cluster IP"), ("ipFamilies", "secondary IP family")] {
        let pointer = format!("/spec/{field}");
        let (count, before) = (texts(service, &pointer).len(), texts(old, &pointer).len());
        if policy(service) != "SingleStack" {
            if count > 0 && count < before {
                let detail = format!("must be 'SingleStack' to release the {second}");
                errors.push(FieldError::invalid(&policy_path(), policy(service), detail));
            }
        } else if count > 1
            && texts(service, &pointer) == texts(old, &pointer)
            && let Some(list) = service.pointer_mut(&pointer).and_then(Value::as_array_mut)
        {
            list.truncate(1);
        }
    }
    errors
}

fn refuse_two_in_single_stack(service: &Value) -> Vec<FieldError> {
    if policy(service) != "SingleStack" {
        return Vec::new();
    }
    let refused = [("/spec/clusterIPs", "cluster IPs"), ("/spec/ipFamilies", "IP families")];
    let refused = refused.into_iter().filter(|(pointer, _)| texts(service, pointer).len() == 2);
    let error = |(_, what): (&str, &str)| {
        let detail =
            format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
        FieldError::invalid(&policy_path(), "SingleStack", detail)
    };
    refused.map(error).collect()
}

/// Adds the families of given addresses.
fn infer_families(service: &mut Value, configured: &[IpFamily]) -> Vec<FieldError> {
    if is_headless(service) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let given: Vec<String> = texts(service, "/spec/clusterIPs").into_iter().map(str::to_owned).collect();
    let mut wanted = families(service);
    for (index, address) in given.iter().enumerate().skip(wanted.len()) {
        let Ok(address) = address.parse::<IpAddr>() else { continue };
        let family = IpFamily::of(address);
        if configured.contains(&family) {
            wanted.push(family);
        } else {
            let at = FieldPath::root("spec").child("clusterIPs").index(index);
            let detail = format!("{} is not configured on this cluster", family.name());
            errors.push(FieldError::invalid(&at, json!(given), detail));
        }
    }
    if !wanted.is_empty() {
        set_families(service, &wanted);
    }
    errors
}

fn families(service: &Value) -> Vec<IpFamily> {
    texts(service, "/spec/ipFamilies").into_iter().filter_map(IpFamily::parse).collect()
}

fn set_families(service: &mut Value, families: &[IpFamily]) {
    if let Some(spec) = defaulting::object_mut(service, "spec") {
        spec["ipFamilies"] = families.iter().map(|family| family.name()).collect();
    }
}

fn policy(service: &Value) -> &str {
    text(service, "/spec/ipFamilyPolicy")
}

fn policy_path() -> FieldPath {
    FieldPath::root("spec").child("ipFamilyPolicy")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::tests::messages;

    const BOTH: &[IpFamily] = &[IpFamily::V4, IpFamily::V6];

    /// Returns policy and families of a service that is completed.
    fn completed(spec: Value, old: Option<Value>, configured: &[IpFamily]) -> Result<Value, Vec<String>> {
        let mut service = json!({"spec": spec});
        let old = old.map(|spec| json!({"spec": spec}));
        let errors = complete_ip_families(&mut service, old.as_ref(), configured);
        if errors.is_empty() { Ok(service["spec"].take()) } else { Err(messages(errors)) }
    }

    fn families_of(spec: Value, configured: &[IpFamily]) -> (String, Vec<String>) {
        let spec = completed(spec, None, configured).unwrap();
        let families = texts(&spec, "/ipFamilies").into_iter().map(str::to_owned).collect();
        (text(&spec, "/ipFamilyPolicy").to_owned(), families)
    }

    #[test]
    fn families_are_defaulted_by_policy_and_cluster() {
        let expect = |policy: &str, families: &[&str]| {
            (policy.to_owned(), families.iter().map(|family| (*family).to_owned()).collect::<Vec<_>>())
        };
        let single = expect("SingleStack", &["IPv4"]);
        assert_eq!(families_of(json!({}), BOTH), single);
        assert_eq!(families_of(json!({}), &[IpFamily::V6]), expect("SingleStack", &["IPv6"]));
        let prefer = json!({"ipFamilyPolicy": "PreferDualStack"});
        assert_eq!(families_of(prefer.clone(), BOTH), expect("PreferDualStack", &["IPv4", "IPv6"]));
        assert_eq!(families_of(prefer, &[IpFamily::V4]), expect("PreferDualStack", &["IPv4"]));
        let second = json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]});
        assert_eq!(families_of(second, BOTH), expect("RequireDualStack", &["IPv6", "IPv4"]));
        let fixed = json!({"clusterIP": "fd00::5", "clusterIPs": ["fd00::5"]});
        assert_eq!(families_of(fixed, BOTH), expect("SingleStack", &["IPv6"]));
        let headless = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        assert_eq!(families_of(headless, &[IpFamily::V4]), expect("RequireDualStack", &["IPv4", "IPv6"]));
        let selecting = json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}});
        assert_eq!(families_of(selecting, &[IpFamily::V4]), single);
    }

    #[test]
    fn families_that_the_cluster_or_the_policy_does_not_allow_are_refused() {
        for (spec, configured, expected) in [
            (
                json!({"ipFamilyPolicy": "RequireDualStack"}),
                &[IpFamily::V4][..],
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for \
                 dual-stack services",
            ),
            (
                json!({"ipFamilies": ["IPv6"]}),
                &[IpFamily::V4],
                "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
            ),
            (
                json!({"clusterIP": "fd00::5", "clusterIPs": ["fd00::5"]}),
                &[IpFamily::V4],
                "spec.clusterIPs[0]: Invalid value: [\"fd00::5\"]: IPv6 is not configured on this cluster",
            ),
            (
                json!({"ipFamilies": ["IPv4", "IPv6"]}),
                BOTH,
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or \
                 'PreferDualStack' when multiple IP families are specified",
            ),
        ] {
            assert_eq!(completed(spec.clone(), None, configured), Err(vec![expected.to_owned()]), "{spec}");
        }
    }

    #[test]
    fn second_family_is_released_by_policy_alone() {
        let dual = json!({"type": "ClusterIP", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"});
        let mut single = dual.clone();
        single["ipFamilyPolicy"] = "SingleStack".into();
        let spec = completed(single, Some(dual.clone()), BOTH).unwrap();
        assert_eq!((&spec["clusterIPs"], &spec["ipFamilies"]), (&json!(["10.0.0.5"]), &json!(["IPv4"])));
        let mut dropped = dual.clone();
        dropped["clusterIPs"] = json!(["10.0.0.5"]);
        assert_eq!(
            completed(dropped, Some(dual), BOTH),
            Err(vec![
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the \
                 secondary cluster IP"
                    .to_owned()
            ])
        );
    }

    #[test]
    fn preferring_service_is_not_upgraded_with_its_cluster() {
        let before = json!({"type": "ClusterIP", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"});
        assert_eq!(completed(before.clone(), Some(before.clone()), BOTH), Ok(before));
    }
}
