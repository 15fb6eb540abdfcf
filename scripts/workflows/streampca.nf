// DSL2 module: include { PCA; EXPORT; REPORT } from './streampca.nf'
// Exit code 75 means that the run was stopped and can be retried.

process PCA {
    tag "$name"
    errorStrategy { task.exitStatus == 75 ? 'retry' : 'terminate' }
    maxRetries 3

    input:
    tuple val(name), path(bed), path(bim), path(fam)
    val k

    output:
    tuple val(name), path("${name}.pca.zarr")

    script:
    // Leave a tenth of the job's memory to the system.
    def memory = task.memory ? "--memory ${(task.memory.toMega() * 0.9) as int}MB" : ''
    """
    streampca pca $bed -k $k $memory --threads $task.cpus --quiet --out ${name}.pca.zarr
    """
}

process EXPORT {
    tag "$name"

    input:
    tuple val(name), path(result)

    output:
    tuple val(name), path("${name}.eigenvec"), path("${name}.eigenval"), path("${name}.eigenvec.var")

    script:
    """
    streampca export $result --format plink --out $name
    """
}

process REPORT {
    tag "$name"

    input:
    tuple val(name), path(result)

    output:
    tuple val(name), path("${name}.html")

    script:
    """
    streampca report $result --out ${name}.html
    """
}
