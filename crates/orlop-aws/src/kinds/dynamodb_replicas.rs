//! Replicas of a dynamodb Table in other regions (global tables, version 2019.11.21).

use serde_json::{Value, json};

use crate::{
    client::{Failure, Result, Session},
    fields::{Case, Field, compare, from_json, parse, to_json},
    kind::{Object, Observed},
};

/// Refuses replicas that AWS would refuse: they are fed by the stream of the table.
pub(super) fn validate(object: &Object) -> Result<()> {
    let desired = object.spec["tableReplicas"].as_array().is_some_and(|replicas| !replicas.is_empty());
    let stream = &object.spec["streamSpecification"];
    if desired && (stream["streamEnabled"] != true || stream["streamViewType"] != "NEW_AND_OLD_IMAGES") {
        return Err(Failure::Terminal(
            "table must have DynamoDB Streams enabled with StreamViewType set to NEW_AND_OLD_IMAGES for replica \
             updates"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Returns the replicas of a table's description, in the form of the spec.
pub(super) fn observed(aws: &Session, table: &Value) -> Value {
    let fields = parse(
        "globalSecondaryIndexes[]{indexName provisionedThroughputOverride{readCapacityUnits:i}}
         kmsMasterKeyID>KMSMasterKeyId provisionedThroughputOverride{readCapacityUnits:i} regionName",
    );
    let all = table["Replicas"].as_array().into_iter().flatten();
    // The region that was asked may be among them; it is the table itself.
    let elsewhere = all.filter(|replica| replica["RegionName"] != aws.region.as_str());
    elsewhere
        .map(|replica| {
            let mut spec = from_json(&fields, replica, Case::Pascal);
            if let Some(class) = replica["ReplicaTableClassSummary"]["TableClass"].as_str() {
                spec["tableClassOverride"] = json!(class);
            }
            spec
        })
        .collect()
}

/// Names a replica that is not ready for another change.
pub(super) fn busy(table: &Value) -> Option<String> {
    let all = table["Replicas"].as_array().into_iter().flatten();
    let busy = all.into_iter().find_map(|replica| {
        let state = replica["ReplicaStatus"].as_str().filter(|state| *state != "ACTIVE")?;
        Some((replica["RegionName"].as_str().unwrap_or_default(), state))
    });
    busy.map(|(region, state)| {
        format!("table replica in '{state}' state, cannot be modified or deleted ({region})")
    })
}

/// Returns the regions of a spec's replicas.
pub(super) fn regions(spec: &Value) -> Vec<String> {
    let all = spec["tableReplicas"].as_array().into_iter().flatten();
    all.filter_map(|replica| replica["regionName"].as_str().map(str::to_owned)).collect()
}

/// Returns the next change: AWS takes one replica at a time. A removal, an addition, a change.
pub(super) fn next(fields: &[Field], object: &Object, observed: &Observed) -> Option<Value> {
    let (desired, seen) = (regions(&object.spec), regions(&observed.spec));
    if let Some(region) = seen.iter().find(|region| !desired.contains(region)) {
        return Some(json!({"Delete": {"RegionName": region}}));
    }
    let field: Vec<Field> = fields.iter().filter(|field| field.name == "tableReplicas").cloned().collect();
    let of = |spec: &Value, region: &str| {
        let mut all = spec["tableReplicas"].as_array().into_iter().flatten();
        json!({"tableReplicas": [all.find(|replica| replica["regionName"] == region)]})
    };
    let wire = |spec: &Value| to_json(&field, spec, Case::Pascal)["TableReplicas"][0].clone();
    if let Some(region) = desired.iter().find(|region| !seen.contains(region)) {
        return Some(json!({"Create": wire(&of(&object.spec, region))}));
    }
    let differs = |region: &&String| {
        !compare(&field, &of(&object.spec, region), &of(&observed.spec, region)).is_empty()
    };
    let region = desired.iter().find(differs)?;
    Some(json!({"Update": wire(&of(&object.spec, region))}))
}
