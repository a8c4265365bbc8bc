//! Graphs of graphs, cluster-scoped instances, and kinds of other controllers.

use serde_json::{Value as Json, json};

use crate::harness::{Harness, definition, instance, map};

const KRO: &str = "kro.run/v1alpha1";

/// A node with an instance of another definition.
fn nested(id: &str, kind: &str, name: &str, spec: Json) -> Json {
    json!({"id": id, "template": {"apiVersion": KRO, "kind": kind, "metadata": {"name": name}, "spec": spec}})
}

#[tokio::test]
async fn three_levels_of_kinds_pass_values_up_and_are_deleted_together() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let leaf = definition(
        "leaf",
        "Leaf",
        json!({"v": "string"}),
        json!({"made": "${m.data.v + '!'}"}),
        json!([map("m", "${schema.metadata.name + '-map'}", json!({"v": "${schema.spec.v}"}))]),
    );
    harness.apply_json(&leaf).await?;
    harness.definition("leaf", "Active").await?;
    let middle = definition(
        "middle",
        "Middle",
        json!({"v": "string"}),
        json!({"made": "${leaf.status.made}"}),
        json!([nested(
            "leaf",
            "Leaf",
            "${schema.metadata.name + '-leaf'}",
            json!({"v": "${schema.spec.v}"})
        )]),
    );
    harness.apply_json(&middle).await?;
    harness.definition("middle", "Active").await?;
    let mut part = nested("part", "Middle", "${schema.metadata.name + '-part'}", json!({"v": "x"}));
    part["readyWhen"] = json!(["${part.status.state == 'ACTIVE'}"]);
    let after = map("after", "after", json!({"v": "${part.status.made}"}));
    let top =
        definition("top", "Top", json!({}), json!({"made": "${part.status.made}"}), json!([part, after]));
    harness.apply_json(&top).await?;
    harness.definition("top", "Active").await?;

    harness.apply_json(&instance("Top", "t", json!({}))).await?;
    let t = harness.instance("Top", "t", "ACTIVE").await?;
    assert_eq!(t["status"]["made"], "x!");
    assert_eq!(harness.config_map("after").await?.unwrap_or_default()["data"]["v"], "x!");
    harness.delete(KRO, "Top", "t").await?;
    harness.gone(KRO, "Top", "t").await?;
    for (kind, name) in [("Middle", "t-part"), ("Leaf", "t-part-leaf")] {
        assert!(harness.get(KRO, kind, name).await?.is_none(), "{kind} is left");
    }
    assert!(harness.config_map("t-part-leaf-map").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn graph_makes_a_definition_whose_kind_it_then_serves() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let inner = json!({"id": "inner", "template": {
        "apiVersion": KRO, "kind": "ResourceGraphDefinition",
        "metadata": {"name": "${schema.spec.name}"},
        "spec": {
            "schema": {"apiVersion": "v1alpha1", "kind": "${schema.spec.kind}", "spec": {"v": "${schema.spec.type}"}},
            "resources": [{"id": "m", "template": {"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "${\"${schema.metadata.name}\"}"},
                "data": {"v": "${\"${string(schema.spec.v)}\"}"}}}]}}});
    let outer = definition(
        "outer",
        "Outer",
        json!({"name": "string", "kind": "string", "type": "string"}),
        json!({"state": "${inner.status.state}"}),
        json!([inner]),
    );
    harness.apply_json(&outer).await?;
    harness.definition("outer", "Active").await?;
    harness
        .apply_json(&instance("Outer", "o", json!({"name": "made", "kind": "Made", "type": "integer"})))
        .await?;
    harness.definition("made", "Active").await?;
    harness.apply_json(&instance("Made", "m", json!({"v": 7}))).await?;
    harness.instance("Made", "m", "ACTIVE").await?;
    assert_eq!(harness.config_map("m").await?.unwrap_or_default()["data"]["v"], "7");
    harness.delete(KRO, "Made", "m").await?;
    harness.gone(KRO, "Made", "m").await?;
    harness.delete(KRO, "Outer", "o").await?;
    harness.gone(KRO, "ResourceGraphDefinition", "made").await?;
    Ok(())
}

/// A CRD as ACK's are: an ARN and conditions in the status.
fn ack_kind(kind: &str, spec: Json, status: Json) -> Json {
    let lower = kind.to_lowercase();
    let condition = json!({"type": "object", "required": ["status", "type"], "properties": {
        "type": {"type": "string"}, "status": {"type": "string"}, "message": {"type": "string"},
        "lastTransitionTime": {"type": "string", "format": "date-time"}}});
    let mut properties = json!({
        "ackResourceMetadata": {"type": "object", "properties": {
            "arn": {"type": "string"}, "ownerAccountID": {"type": "string"}, "region": {"type": "string"}}},
        "conditions": {"type": "array", "items": condition}});
    for (name, field) in status.as_object().into_iter().flatten() {
        properties[name] = field.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{lower}s.ec2.services.k8s.aws")},
        "spec": {"group": "ec2.services.k8s.aws", "scope": "Namespaced",
            "names": {"kind": kind, "plural": format!("{lower}s"), "singular": lower, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": spec},
                    "status": {"type": "object", "properties": properties}}}}}]}})
}

#[tokio::test]
async fn ack_resources_are_made_level_by_level_as_they_are_synced() -> anyhow::Result<()> {
    const ACK: &str = "ec2.services.k8s.aws/v1alpha1";
    let harness = Harness::start().await?;
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    for crd in [
        ack_kind("VPC", json!({"cidrBlocks": texts}), json!({"vpcID": text})),
        ack_kind("Subnet", json!({"vpcID": text, "cidrBlock": text}), json!({"subnetID": text})),
        ack_kind("SecurityGroup", json!({"vpcID": text, "name": text}), json!({"id": text})),
    ] {
        harness.apply_json(&crd).await?;
    }
    let synced = |id: &str| {
        format!("${{{id}.status.conditions.exists(c, c.type == 'ACK.ResourceSynced' && c.status == 'True')}}")
    };
    let node = |id: &str, kind: &str, name: &str, spec: Json| {
        json!({"id": id, "readyWhen": [synced(id)], "template": {
            "apiVersion": ACK, "kind": kind, "metadata": {"name": format!("${{schema.spec.name}}-{name}")}, "spec": spec}})
    };
    let rgd = definition(
        "networking",
        "Networking",
        json!({"name": "string"}),
        json!({"network": {"vpcID": "${vpc.status.vpcID}", "subnets": ["${subnetA.status.subnetID}", "${subnetB.status.subnetID}"],
            "arn": "${group.status.ackResourceMetadata.arn}"}}),
        json!([
            node(
                "subnetA",
                "Subnet",
                "a",
                json!({"vpcID": "${vpc.status.vpcID}", "cidrBlock": "10.0.1.0/24"})
            ),
            node(
                "subnetB",
                "Subnet",
                "b",
                json!({"vpcID": "${vpc.status.vpcID}", "cidrBlock": "10.0.2.0/24"})
            ),
            node(
                "group",
                "SecurityGroup",
                "g",
                json!({"vpcID": "${vpc.status.vpcID}", "name": "${subnetA.status.subnetID + '-' + vpc.status.vpcID}"})
            ),
            node("vpc", "VPC", "vpc", json!({"cidrBlocks": ["10.0.0.0/16"]})),
        ]),
    );
    harness.apply_json(&rgd).await?;
    let rgd = harness.definition("networking", "Active").await?;
    assert_eq!(rgd["status"]["topologicalOrder"], json!(["vpc", "subnetA", "subnetB", "group"]));
    assert_eq!(
        rgd["status"]["resources"],
        json!([{"id": "subnetA", "dependencies": [{"id": "vpc"}]}, {"id": "subnetB", "dependencies": [{"id": "vpc"}]},
            {"id": "group", "dependencies": [{"id": "subnetA"}, {"id": "vpc"}]}])
    );
    harness.apply_json(&instance("Networking", "n", json!({"name": "net"}))).await?;
    let n = harness.instance("Networking", "n", "IN_PROGRESS").await?;
    let message = Harness::condition(&n, "ResourcesReady")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("node \"vpc\"") && message.contains("unresolved"), "{message}");
    assert!(harness.list(ACK, "Subnet", None).await?.is_empty(), "dependents wait");

    let report = async |kind: &str, name: &str, field: &str, value: &str, synced: &str| {
        let status = json!({"status": {field: value, "ackResourceMetadata": {"arn": format!("arn:{value}")},
            "conditions": [{"type": "ACK.ResourceSynced", "status": synced}]}});
        harness.patch_in((ACK, kind, name), None, "/status", status).await
    };
    // An id without ACK.ResourceSynced is not enough.
    report("VPC", "net-vpc", "vpcID", "vpc-1", "False").await?;
    let n = harness.instance("Networking", "n", "IN_PROGRESS").await?;
    assert_eq!(n["status"]["network"]["subnets"], Json::Null);
    assert!(harness.list(ACK, "Subnet", None).await?.is_empty());
    report("VPC", "net-vpc", "vpcID", "vpc-1", "True").await?;
    for (name, id) in [("net-a", "subnet-a"), ("net-b", "subnet-b")] {
        let subnet =
            harness.until("subnets appear", async || Ok(harness.get(ACK, "Subnet", name).await?)).await?;
        assert_eq!(subnet["spec"]["vpcID"], "vpc-1");
        report("Subnet", name, "subnetID", id, "True").await?;
    }
    let group = harness
        .until("the group appears", async || Ok(harness.get(ACK, "SecurityGroup", "net-g").await?))
        .await?;
    assert_eq!(group["spec"]["name"], "subnet-a-vpc-1");
    report("SecurityGroup", "net-g", "id", "sg-1", "True").await?;
    let n = harness.instance("Networking", "n", "ACTIVE").await?;
    assert_eq!(
        n["status"]["network"],
        json!({"vpcID": "vpc-1", "subnets": ["subnet-a", "subnet-b"], "arn": "arn:sg-1"})
    );
    harness.delete(KRO, "Networking", "n").await?;
    harness.gone(KRO, "Networking", "n").await?;
    for kind in ["VPC", "Subnet", "SecurityGroup"] {
        assert!(harness.list(ACK, kind, None).await?.is_empty(), "{kind} is left");
    }
    Ok(())
}

#[tokio::test]
async fn cluster_scoped_instance_composes_namespaces_and_what_lives_in_them() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let in_namespace = |id: &str, name: &str, data: Json| {
        let mut node = map(id, name, data);
        node["template"]["metadata"]["namespace"] = json!("${home.metadata.name}");
        node
    };
    let mut entries = in_namespace("entries", "${'c-' + x}", json!({"x": "${x}"}));
    entries["forEach"] = json!([{"x": "${schema.spec.list}"}]);
    let mut rgd = definition(
        "tenant",
        "ClusterTenant",
        json!({"team": "string", "list": "[]string"}),
        json!({"maps": "${given.map(m, m.metadata.name).sort().join(',')}", "count": "${entries.size()}"}),
        json!([
            {"id": "home", "template": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "${schema.spec.team}"}}},
            {"id": "role", "template": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "${schema.spec.team + '-reader'}"},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["${inside.metadata.name}"], "verbs": ["get"]}]}},
            {"id": "given", "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"selector": {"matchLabels": {"team": "${schema.spec.team}"}}}}},
            {"id": "one", "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given", "namespace": "default"}}},
            in_namespace("inside", "inside", json!({"v": "${one.data.v}"})),
            entries,
        ]),
    );
    rgd["spec"]["schema"]["scope"] = json!("Cluster");
    harness.apply_json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given", "labels": {"team": "red"}}, "data": {"v": "one"}})).await?;
    harness.apply_json(&rgd).await?;
    harness.definition("tenant", "Active").await?;
    harness.apply_json(&instance("ClusterTenant", "t", json!({"team": "red", "list": ["a", "b"]}))).await?;
    let t = harness.instance("ClusterTenant", "t", "ACTIVE").await?;
    assert_eq!((t["status"]["maps"].as_str(), t["status"]["count"].as_i64()), (Some("given"), Some(2)));
    let inside = harness.get_in("v1", "ConfigMap", Some("red"), "inside").await?.unwrap_or_default();
    assert_eq!(inside["data"]["v"], "one");
    let labels = &inside["metadata"]["labels"];
    assert!(labels["kro.run/instance-namespace"].is_null() && labels["kro.run/instance-name"] == "t");
    assert_eq!(t["metadata"]["annotations"]["applyset.kubernetes.io/additional-namespaces"], "red");
    // Items in another namespace are repaired from events too, a known fault of kro.
    harness.call("DELETE", "/api/v1/namespaces/red/configmaps/c-b", None).await?;
    harness
        .until("the item is back", async || Ok(harness.get_in("v1", "ConfigMap", Some("red"), "c-b").await?))
        .await?;
    let role = ("rbac.authorization.k8s.io/v1", "ClusterRole", "red-reader");
    harness.patch(role, json!({"rules": []})).await?;
    harness
        .until("a cluster-scoped child is repaired", async || {
            let role = harness.get(role.0, role.1, role.2).await?.unwrap_or_default();
            Ok((role["rules"].as_array().map(Vec::len) == Some(1)).then_some(()))
        })
        .await?;
    harness.delete(KRO, "ClusterTenant", "t").await?;
    harness.gone(KRO, "ClusterTenant", "t").await?;
    assert!(harness.get(role.0, role.1, role.2).await?.is_none());
    assert!(harness.config_map("given").await?.is_some(), "external objects stay");
    Ok(())
}
