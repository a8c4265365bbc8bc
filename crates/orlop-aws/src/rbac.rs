//! Manifests: the rights of the controllers and the traffic that they need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{bridge, kinds::KINDS, settings::Settings};

/// Name of the ServiceAccount and of its right to watch.
const ACCOUNT: &str = "orlop-aws";
/// Name of the right to write.
const WRITER: &str = "orlop-aws-writer";

/// Returns Namespace, ServiceAccount and roles: one to watch everywhere, one to write in the watched namespaces, or in all
/// where none is named, and one for users to read status.
pub fn rbac(settings: &Settings, namespace: &str) -> Vec<Value> {
    let rule = |group: &str, resources: &[String], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // What is only referred to belongs to other controllers: it is read.
    let mut referred: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for kind in KINDS.iter().filter(|kind| settings.has_kind(kind.descriptor().kind)) {
        let descriptor = kind.descriptor();
        groups.entry(descriptor.group()).or_default().insert(descriptor.plural.to_owned());
        for reference in descriptor.references {
            let resource = crate::references::resource_of(reference.target.0, reference.target.1);
            referred.entry(resource.group).or_default().insert(resource.plural);
        }
    }
    for kind in bridge::KINDS.iter().filter(|kind| settings.has_kind(kind.descriptor().kind)) {
        let descriptor = kind.descriptor();
        groups.entry(settings.bridge_group.clone()).or_default().insert(descriptor.plural.to_owned());
        for (service, kind) in descriptor.children {
            let resource = crate::references::resource_of(service, kind);
            groups.entry(resource.group).or_default().insert(resource.plural);
        }
        for (service, kind) in descriptor.references {
            let resource = crate::references::resource_of(service, kind);
            referred.entry(resource.group).or_default().insert(resource.plural);
        }
    }
    groups.insert(
        "services.k8s.aws".to_owned(),
        ["fieldexports", "iamroleselectors"].map(str::to_owned).into(),
    );
    let (mut rules, mut write, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for (group, plurals) in &groups {
        let plurals: Vec<String> = plurals.iter().cloned().collect();
        let statuses: Vec<String> = plurals.iter().map(|plural| format!("{plural}/status")).collect();
        rules.push(rule(group, &plurals, &["get", "list", "watch"]));
        write.push(rule(group, &plurals, &["create", "update", "patch", "delete"]));
        write.push(rule(group, &statuses, &["get", "update", "patch"]));
        read.push(rule(group, &plurals, &["get", "list", "watch"]));
    }
    for (group, plurals) in referred {
        let known = groups.get(&group);
        let others = plurals.into_iter().filter(|plural| known.is_none_or(|known| !known.contains(plural)));
        let others: Vec<String> = others.collect();
        if !others.is_empty() {
            rules.push(rule(&group, &others, &["get", "list", "watch"]));
        }
    }
    let one = |name: &str| vec![name.to_owned()];
    rules.push(rule("", &one("namespaces"), &["get", "list", "watch"]));
    rules.push(rule("", &one("configmaps"), &["get", "list", "watch"]));
    if settings.field_exports {
        write.push(rule("", &one("configmaps"), &["patch"]));
    }
    // Certificates are imported from Secrets and exported to them, and FieldExports may write to them.
    if settings.field_exports || settings.has_kind("Certificate") {
        write.push(rule("", &one("secrets"), &["get", "patch"]));
    }
    write.push(rule("", &one("events"), &["create", "patch"]));
    rules.push(rule(
        "coordination.k8s.io",
        &one("leases"),
        &["get", "list", "watch", "create", "update", "patch"],
    ));
    let definitions = one("customresourcedefinitions");
    rules.push(rule(
        "apiextensions.k8s.io",
        &definitions,
        &["get", "list", "watch", "create", "update", "patch"],
    ));
    let api = "rbac.authorization.k8s.io/v1";
    let role = |name: &str, rules: &[Value]| json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = |role: &str, within: Option<&str>| {
        let mut binding = json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]});
        if let Some(within) = within {
            binding["kind"] = json!("RoleBinding");
            binding["metadata"]["namespace"] = json!(within);
        }
        binding
    };
    let mut view = role("orlop-aws-view", &read);
    view["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace,
            "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::ACCOUNT:role/orlop-aws"}}}),
        role(ACCOUNT, &rules),
        role(WRITER, &write),
        view,
        binding(ACCOUNT, None),
    ];
    match settings.namespaces.is_empty() {
        true => all.push(binding(WRITER, None)),
        false => all.extend(settings.namespaces.iter().map(|within| binding(WRITER, Some(within)))),
    }
    all
}

/// Destinations of the controllers' traffic. None is any address, by its port alone.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    /// CIDR blocks of the API server.
    pub api_server: Vec<String>,
    /// CIDR blocks of AWS' endpoints, such as those of a VPC's interface endpoints.
    pub aws: Vec<String>,
}

/// Addresses of EKS pod identity and of instance metadata, which give credentials.
const CREDENTIALS: [&str; 4] =
    ["169.254.170.23/32", "169.254.169.254/32", "fd00:ec2::23/128", "fd00:ec2::254/128"];

/// Returns a NetworkPolicy for the controllers' pods: egress to DNS, to the API server, to AWS by TLS and to the sources
/// of credentials; ingress to metrics and probes. All else is denied.
pub fn network_policy(namespace: &str, egress: &Egress) -> Value {
    let port = |protocol: &str, port: u16| json!({"protocol": protocol, "port": port});
    let rule = |blocks: &[&str], ports: &[Value]| {
        let mut rule = json!({"ports": ports});
        if !blocks.is_empty() {
            rule["to"] = blocks.iter().map(|block| json!({"ipBlock": {"cidr": block}})).collect();
        }
        rule
    };
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": ACCOUNT, "namespace": namespace},
        "spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/name": ACCOUNT}}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port("TCP", 8080), port("TCP", 8081)]}],
            "egress": [
                rule(&[], &[port("UDP", 53), port("TCP", 53)]),
                rule(&texts(&egress.api_server), &[port("TCP", 443), port("TCP", 6443)]),
                rule(&texts(&egress.aws), &[port("TCP", 443)]),
                rule(&CREDENTIALS, &[port("TCP", 80)])]}})
}

fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if an address is in a block. IPv4 only.
    fn contains(block: &str, address: &str) -> bool {
        let (Some((network, bits)), Ok(address)) =
            (block.split_once('/'), address.parse::<std::net::Ipv4Addr>())
        else {
            return false;
        };
        let Ok(network) = network.parse::<std::net::Ipv4Addr>() else { return false };
        let bits: u32 = bits.parse().expect("a length");
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or_default();
        u32::from(network) & mask == u32::from(address) & mask
    }

    /// Decides as a network plugin does: a selected pod may connect if a rule has the port, and the address or none.
    fn allows(policy: &Value, direction: &str, address: &str, protocol: &str, port: u16) -> bool {
        let rules = policy["spec"][direction].as_array().expect("rules");
        rules.iter().any(|rule| {
            let ports = rule["ports"].as_array().expect("a rule without ports is open to everything");
            let peers = rule["to"].as_array();
            let by_port = ports.iter().any(|known| known["protocol"] == protocol && known["port"] == port);
            let block = |peer: &Value| peer["ipBlock"]["cidr"].as_str().expect("a block").to_owned();
            by_port && peers.is_none_or(|peers| peers.iter().any(|peer| contains(&block(peer), address)))
        })
    }

    #[test]
    fn secrets_are_granted_only_where_a_kind_needs_them() {
        let grants = |kinds: &[&str], field_exports: bool| {
            let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
            let settings = Settings { kinds, field_exports, ..Settings::default() };
            Value::Array(rbac(&settings, "ack-system")).to_string().contains("\"secrets\"")
        };
        assert!(grants(&[], true) && grants(&["Function"], true) && grants(&["Certificate"], false));
        assert!(!grants(&["Function", "APIGatewayDomain"], false));
    }

    #[test]
    fn network_policy_lets_out_to_dns_the_api_server_and_aws_alone() {
        let policy = network_policy("ack-system", &Egress::default());
        let out =
            |address: &str, protocol: &str, port: u16| allows(&policy, "egress", address, protocol, port);
        assert!(out("10.0.0.10", "UDP", 53) && out("10.0.0.10", "TCP", 53));
        assert!(out("10.0.0.1", "TCP", 443) && out("10.1.2.3", "TCP", 6443) && out("52.94.5.1", "TCP", 443));
        // Pod identity and instance metadata, and nothing else without TLS.
        assert!(out("169.254.170.23", "TCP", 80) && out("169.254.169.254", "TCP", 80));
        for (address, protocol, port) in [
            ("10.0.0.5", "TCP", 80),
            ("169.254.1.1", "TCP", 80),
            ("10.0.0.5", "TCP", 5432),
            ("10.0.0.5", "TCP", 22),
            ("52.94.5.1", "UDP", 443),
            ("52.94.5.1", "TCP", 8443),
        ] {
            assert!(!out(address, protocol, port), "{address} {protocol} {port}");
        }
        let within = |port: u16| allows(&policy, "ingress", "10.0.0.7", "TCP", port);
        assert!(within(8080) && within(8081) && !within(443) && !within(22));
        // Without both types, what no rule names would be open.
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"], "orlop-aws");
    }

    #[test]
    fn network_policy_with_blocks_lets_out_to_these_alone() {
        let egress =
            Egress { api_server: vec!["10.9.0.0/16".to_owned()], aws: vec!["10.8.1.0/24".to_owned()] };
        let policy = network_policy("ack-system", &egress);
        let out = |address: &str, port: u16| allows(&policy, "egress", address, "TCP", port);
        assert!(out("10.9.1.1", 6443) && out("10.9.1.1", 443) && out("10.8.1.7", 443));
        assert!(!out("10.8.1.7", 6443) && !out("10.8.2.7", 443) && !out("52.94.5.1", 443));
    }
}
